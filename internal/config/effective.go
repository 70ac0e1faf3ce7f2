package config

import "strconv"

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

// derived is what another variable makes of one that is not set; "" where only the preset's names tell.
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
