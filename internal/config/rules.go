package config

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// The tags range, unit and oneof are rules: they are enforced here, and the documentation says them as they are
// enforced. The tag allowed is a text for what a function checks.

// checkRules applies the tags to every value that could be parsed.
func (l *loader) checkRules() {
	for _, name := range l.order {
		v, found := l.byName[name]
		if !found || v.bad || v.text == "" { // defaults are within the rules; a test says so
			continue
		}
		if reason := v.breaks(); reason != "" {
			l.reject(name, "%s", reason)
		}
	}
}

// breaks says which rule the value breaks, "" if none.
func (v *variable) breaks() string {
	if words, found := v.tag.Lookup("oneof"); found && !slices.Contains(strings.Split(words, "|"), v.value.String()) {
		return "not one of the words"
	}
	bounds, found := v.tag.Lookup("range")
	if !found {
		return ""
	}
	low, high := v.bounds(bounds)
	unit := v.number(v.tag.Get("unit"))
	for _, n := range v.numbers() {
		switch {
		case n < low || n > high:
			return "out of range"
		case unit > 0 && n%unit != 0:
			return "not a whole number of " + map[string]string{"1s": "seconds", "1ms": "milliseconds"}[v.tag.Get("unit")]
		}
	}
	return ""
}

func (v *variable) bounds(text string) (low, high int64) {
	a, b, _ := strings.Cut(text, "..")
	return v.number(a), v.number(b)
}

// number reads a bound in the variable's own notation; 0 for "".
func (v *variable) number(text string) int64 {
	if text == "" {
		return 0
	}
	var n int64
	var err error
	switch v.value.Interface().(type) {
	case time.Duration, Delays:
		var d time.Duration
		if d, err = time.ParseDuration(text); err == nil {
			n = int64(d)
		}
	case Millis:
		var m Millis
		if m, err = parseMillis(text); err == nil {
			n = int64(m)
		}
	default:
		var s Size
		if s, err = parseSize(text); err == nil {
			n = int64(s)
		}
	}
	if err != nil { // a tag this package got wrong; its tests find that
		panic(v.name + ": " + text)
	}
	return n
}

// numbers returns the numbers that a range bounds: the value, or each of its items.
func (v *variable) numbers() []int64 {
	switch value := v.value.Interface().(type) {
	case Delays:
		all := make([]int64, len(value))
		for i, d := range value {
			all[i] = int64(d)
		}
		return all
	case *int:
		return []int64{int64(*value)}
	}
	return []int64{v.value.Int()}
}

// plain leaves a word as it is, for texts without markup.
func plain(s string) string { return s }

// allowed says in words what the rules are. Every literal goes through code.
func (v *variable) allowed(code func(string) string) string {
	if words, found := v.tag.Lookup("oneof"); found {
		all := strings.Split(words, "|")
		for i, w := range all {
			all[i] = code(w)
		}
		return strings.Join(all, ", ")
	}
	text := v.tag.Get("allowed")
	bounds, found := v.tag.Lookup("range")
	if !found {
		return text
	}
	low, high, _ := strings.Cut(bounds, "..")
	limits := code(low) + " to " + code(high)
	switch {
	case text != "":
		return text + "; each " + limits
	case v.value.Type() == reflect.TypeFor[Size]():
		return "a size from " + limits
	case v.value.Type() == reflect.TypeFor[time.Duration]():
		return "a duration from " + limits + map[string]string{"1s": ", whole seconds",
			"1ms": ", whole milliseconds"}[v.tag.Get("unit")]
	}
	return limits
}
