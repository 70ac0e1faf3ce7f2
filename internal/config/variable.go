package config

import (
	"reflect"
	"strings"
)

// fileSuffix makes the name of the variable that names a secret's file.
const fileSuffix = "_FILE"

// section is one struct of Config and the variables that fill it.
type section struct {
	title, prefix string
	field         string // of Config
	target        any    // pointer to the struct
	variables     []*variable
}

// variable is one environment variable: its tags, the value that was set, and the field for it.
type variable struct {
	name  string // in full
	field string // of the section's struct
	tag   reflect.StructTag
	value reflect.Value // the field itself

	text string // as set; "" when it was not
	file string // path, when the file variant was set instead
	bad  bool   // a problem was found
}

func (v *variable) secret() bool { return v.value.Type() == reflect.TypeFor[Secret]() }

// fileVariant returns the name of the variable that may name a file instead, "" if there is none.
func (v *variable) fileVariant() string {
	if v.secret() && strings.HasPrefix(v.name, prefix) {
		return v.name + fileSuffix
	}
	return ""
}

// key is the name as the problem's line shows it: that of the file variant where the file variant was set.
func (v *variable) key() string {
	if v.file != "" && v.text == "" {
		return v.fileVariant()
	}
	return v.name
}

// shown is the value as a problem may repeat it.
func (v *variable) shown() string {
	switch {
	case v.file != "" && v.text == "":
		return shownPath(v.file)
	case v.text == "":
		return ""
	case v.secret() || urlWithUser(v.text): // the latter where no password belongs
		return masked
	}
	return shown(v.public())
}

// public is the value of a variable that is not a secret, without what must not be shown even where it does not belong:
// a URL with a user, and what follows a '?' or '#' in a variable that holds a URL or a path, because keys are passed
// there.
func (v *variable) public() string {
	if urlWithUser(v.text) {
		return masked
	}
	if at := strings.IndexAny(v.text, "?#"); at >= 0 && v.tag.Get("mask") == "query" {
		return v.text[:at+1] + masked
	}
	return v.text
}

func urlWithUser(v string) bool { return strings.Contains(v, "://") && strings.Contains(v, "@") }

// shownPath hides a value that has not the form of a path: a secret that was put into the _FILE variable by mistake.
func shownPath(path string) string {
	for _, start := range []string{"/", "./", "../"} {
		if strings.HasPrefix(path, start) {
			return shown(path)
		}
	}
	return masked
}

// sections lists what the struct says, in order.
func sections(c *Config) []*section {
	var all []*section
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		title, found := f.Tag.Lookup("section")
		if !found {
			continue
		}
		s := &section{title: title, prefix: f.Tag.Get("prefix"), field: f.Name, target: v.Field(i).Addr().Interface()}
		for j := range f.Type.NumField() {
			g := f.Type.Field(j)
			name, _, _ := strings.Cut(g.Tag.Get("env"), ",")
			s.variables = append(s.variables, &variable{name: s.prefix + name, field: g.Name, tag: g.Tag,
				value: v.Field(i).Field(j)})
		}
		all = append(all, s)
	}
	return all
}
