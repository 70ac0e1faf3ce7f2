package config

import (
	"fmt"
	"slices"
)

// Setting is one variable as it is in effect.
type Setting struct {
	Name   string
	Value  string // secrets and the query of a URL are masked; "" when nothing is set, or when the topology decides
	Origin string // default, environment, derived, preset, or "file:" and a path
}

// Effective lists every variable in the order of the documentation.
func (c *Config) Effective() []Setting { return slices.Clone(c.settings) }

func (l *loader) setting(v *variable) Setting {
	s := Setting{Name: v.name, Value: v.public(), Origin: "environment"}
	_, byPreset := v.tag.Lookup("preset")
	_, derived := v.tag.Lookup("derived")
	switch {
	case v.file != "":
		s.Origin = "file:" + v.file
	case v.text != "":
	case byPreset:
		s.Origin = "preset"
	case derived:
		s.Origin, s.Value = "derived", fmt.Sprint(v.value)
	default:
		s.Origin, s.Value = "default", v.tag.Get("envDefault")
	}
	if v.secret() && (s.Value != "" || v.file != "") {
		s.Value = l.disguised(v)
	}
	return s
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
	for _, tag := range []struct{ name, before string }{
		{"preset", "by preset: "}, {"derived", ""}, {"otherwise", ""},
	} {
		if text, found := v.tag.Lookup(tag.name); found {
			return tag.before + text
		}
	}
	if d, found := v.tag.Lookup("envDefault"); found {
		return code(d)
	}
	return "–"
}
