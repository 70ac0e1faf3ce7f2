package main

import (
	"fmt"
	"regexp"
	"strings"
)

// section is one map of the top level with its keys, or, without a title, one key of the top level that is no map of
// settings.
type section struct {
	title, intro string
	keys         []key
}

type key struct{ path, value, text string }

var line = regexp.MustCompile(`^( *)([A-Za-z0-9_-]+):(?: (.*))?$`)

// reader goes through values.yaml line by line. It reads the YAML that a values file needs: maps, and values on one
// line or indented below their key.
type reader struct {
	sections []section
	path     []string // of the map it is in
	text     string   // of the "# --" above
	intro    []string // other comments above
	skip     int      // deeper lines are the value of the last key; 0: none
}

func parse(values string) ([]section, error) {
	r := &reader{}
	for i, text := range strings.Split(values, "\n") {
		if err := r.read(text); err != nil {
			return nil, fmt.Errorf("values.yaml:%d: %w", i+1, err)
		}
	}
	return r.sections, nil
}

func (r *reader) read(text string) error {
	trimmed := strings.TrimSpace(text)
	indent := len(text) - len(strings.TrimLeft(text, " "))
	switch {
	case trimmed == "":
		r.intro = nil
		return nil
	case r.skip > 0 && indent >= r.skip:
		return r.value(trimmed)
	case strings.HasPrefix(trimmed, "# -- "):
		r.text = trimmed[len("# -- "):]
		return nil
	case strings.HasPrefix(trimmed, "#"):
		r.intro = append(r.intro, strings.TrimSpace(trimmed[1:]))
		return nil
	}
	r.skip = 0
	m := line.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("%q is neither a key nor a comment", trimmed)
	}
	return r.key(indent/2, m[2], m[3])
}

// key takes one line with a key. What has a "# --" is a setting, what has none is a map of settings.
func (r *reader) key(depth int, name, value string) error {
	if depth > len(r.path) {
		return fmt.Errorf("%s is indented too far", name)
	}
	r.path = append(r.path[:depth:depth], name)
	intro := strings.Join(r.intro, " ")
	text := r.text
	r.intro, r.text = nil, ""
	if text == "" {
		if value != "" {
			return fmt.Errorf("%s has no explanation", strings.Join(r.path, "."))
		}
		if depth == 0 {
			r.sections = append(r.sections, section{title: name, intro: intro})
		}
		return nil
	}
	if depth == 0 {
		r.sections = append(r.sections, section{})
	}
	last := &r.sections[len(r.sections)-1]
	last.keys = append(last.keys, key{path: strings.Join(r.path, "."), value: value, text: text})
	if value == "" {
		r.skip = 2 * (depth + 1)
	}
	return nil
}

// value takes a line below a key, as part of its default.
func (r *reader) value(text string) error {
	keys := r.sections[len(r.sections)-1].keys
	last := &keys[len(keys)-1]
	if last.value != "" {
		last.value += ", "
	}
	last.value += text
	return nil
}
