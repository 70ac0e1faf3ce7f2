package config

import (
	"strconv"
	"strings"
)

// Setting is one variable as it is in effect.
type Setting struct {
	Name   string
	Value  string // secrets and the query of a URL are masked; "" when nothing is set, or when the preset decides
	Origin string // OriginDefault, OriginEnvironment, OriginDerived, OriginPreset, or "file:" and a path
}

// The origins of a setting. A secret from a file has OriginFile followed by the path.
const (
	OriginDefault     = "default"
	OriginEnvironment = "environment"
	OriginDerived     = "derived"
	OriginPreset      = "preset"
	OriginFile        = "file:"
)

// Effective lists every variable in the order of the documentation.
func (c *Config) Effective() []Setting { return append([]Setting(nil), c.settings...) }

func (l *loader) settings() []Setting {
	var all []Setting
	for _, s := range l.sections {
		for _, v := range s.variables {
			all = append(all, l.setting(v))
		}
	}
	return all
}

func (l *loader) setting(v *variable) Setting {
	s := Setting{Name: v.name, Value: v.public(), Origin: OriginEnvironment}
	_, byPreset := v.tag.Lookup("preset")
	_, derived := v.tag.Lookup("derived")
	switch {
	case v.file != "":
		s.Origin = OriginFile + v.file
	case v.text != "":
	case byPreset:
		s.Origin = OriginPreset
	case derived:
		s.Origin, s.Value = OriginDerived, l.derived(v.name)
	default:
		s.Origin, s.Value = OriginDefault, v.tag.Get("envDefault")
	}
	if v.secret() && (s.Value != "" || v.file != "") {
		s.Value = l.disguised(v)
	}
	return s
}

// derived returns the value that follows from another variable for one that is not set; "" where only the preset
// defines it.
func (l *loader) derived(name string) string {
	switch name {
	case "SIDECAR_PREFETCH":
		return strconv.Itoa(l.cfg.Window.Prefetch)
	case "SIDECAR_MEMORY":
		return l.cfg.Window.Memory.String()
	case "SIDECAR_PREFIX":
		return l.cfg.Service.Prefix()
	}
	return ""
}

// disguised shows of the broker's URLs what is not secret, and of other secrets nothing.
func (l *loader) disguised(v *variable) string {
	if v.name != "SIDECAR_AMQP_URL" {
		return masked
	}
	list, _ := l.cfg.AMQP.URL.Value() // with an error comes the last good value
	return redactURLs(list)
}

// Section describes one part of the configuration, for the documentation.
type Section struct {
	Title     string
	Field     string // of Config; its type has the same name
	Variables []Variable
}

// Variable describes one environment variable, for the documentation.
type Variable struct {
	Name        string
	FileVariant string // the variable that may name a file instead; "" = none
	Field       string // of the section's type
	Default     string
	Allowed     string
}

// Describe lists every variable Load reads. Literal values in its texts go through code, e.g. to be put in backquotes.
func Describe(code func(string) string) []Section {
	var all []Section
	for _, s := range sections(&Config{}) {
		d := Section{Title: s.title, Field: s.field}
		for _, v := range s.variables {
			d.Variables = append(d.Variables, Variable{
				Name: v.name, FileVariant: v.fileVariant(), Field: v.field, Default: v.otherwise(code), Allowed: v.allowed(code),
			})
		}
		all = append(all, d)
	}
	return all
}

// otherwise says what counts when the variable is not set.
func (v *variable) otherwise(code func(string) string) string {
	if d, found := v.tag.Lookup("envDefault"); found {
		return code(d)
	}
	if _, options, _ := strings.Cut(v.tag.Get("env"), ","); options == "required" {
		return "required"
	}
	if p, found := v.tag.Lookup("preset"); found {
		return "by preset: " + p
	}
	if d, found := v.tag.Lookup("derived"); found {
		return d
	}
	if o, found := v.tag.Lookup("otherwise"); found {
		return o
	}
	return "–"
}
