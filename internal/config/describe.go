package config

import (
	"reflect"
	"strings"
	"time"
)

// Section describes one part of the configuration, for the documentation.
type Section struct {
	Title     string
	Field     string // of Config; its type has the same name
	Variables []Variable
}

// Variable describes one environment variable, for the documentation.
type Variable struct {
	Name    string
	Twin    string // the variable that may name a file instead; "" = none
	Field   string // of the section's type
	Default string
	Allowed string

	// What Allowed says, for programs.
	Kind      string   // "duration", "durations", "number", "size" or "" for text
	Words     []string // all that are allowed
	Low, High string   // in the variable's own notation
	Unit      string   // a value is a whole number of these; "" when it may be any
}

// Describe lists every variable Load reads. Literal values in its texts go through code, e.g. to be put in backquotes.
func Describe(code func(string) string) []Section {
	var all []Section
	for _, s := range sections(&Config{}) {
		d := Section{Title: s.title, Field: s.field}
		for _, v := range s.variables {
			said := Variable{
				Name: v.name, Twin: v.twin(), Field: v.field, Default: v.otherwise(code), Allowed: v.allowed(code),
				Kind: v.kind(), Unit: v.tag.Get("unit"),
			}
			if words, found := v.tag.Lookup("oneof"); found {
				said.Words = strings.Split(words, "|")
			}
			said.Low, said.High, _ = strings.Cut(v.tag.Get("range"), "..")
			d.Variables = append(d.Variables, said)
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

// kind says how the value is written.
func (v *variable) kind() string {
	switch v.value.Type() {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Delays]():
		return "durations"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[int](), reflect.TypeFor[*int](), reflect.TypeFor[Millis](), reflect.TypeFor[float64]():
		return "number"
	}
	return ""
}
