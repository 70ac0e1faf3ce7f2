package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"
)

// The tags range, unit and oneof are rules: they are enforced here, and the documentation says them as they are
// enforced. The tag allowed is a text for what a function checks.

// breaks returns the rule that the value breaks, nil if none.
func (v *Variable) breaks() error {
	if words, found := v.Tag.Lookup("oneof"); found && !slices.Contains(strings.Split(words, "|"), v.value.String()) {
		return errors.New("not one of the words")
	}
	bounds, found := v.Tag.Lookup("range")
	if !found {
		return nil
	}
	low, high := v.bounds(bounds)
	unit := v.Tag.Get("unit")
	for _, n := range v.numbers() {
		switch {
		case n < low || n > high:
			return errors.New("out of range")
		case unit != "" && n%v.number(unit) != 0:
			return errors.New("not a whole number of " + units[unit])
		}
	}
	return nil
}

var units = map[string]string{"1s": "seconds", "1ms": "milliseconds"}

func (v *Variable) bounds(text string) (low, high int64) {
	a, b, _ := strings.Cut(text, "..")
	return v.number(a), v.number(b)
}

// number parses a bound as the variable's own values, or as items of them.
func (v *Variable) number(text string) int64 {
	t := v.value.Type()
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	n, err := parsers[t](text)
	if err != nil { // a tag this package got wrong; its tests find that
		panic(v.Name + ": " + text)
	}
	return reflect.ValueOf(n).Int()
}

// numbers returns the numbers that a range bounds: the value, or each of its items.
func (v *Variable) numbers() []int64 {
	value := reflect.Indirect(v.value)
	if value.Kind() != reflect.Slice {
		return []int64{value.Int()}
	}
	all := make([]int64, value.Len())
	for i := range all {
		all[i] = value.Index(i).Int()
	}
	return all
}

// plain leaves a word as it is, for texts without markup.
func plain(s string) string { return s }

// Allowed says in words what the rules are. Literal values go through code, e.g. to be put in backquotes.
func (v *Variable) Allowed(code func(string) string) string {
	if words, found := v.Tag.Lookup("oneof"); found {
		all := strings.Split(words, "|")
		for i, w := range all {
			all[i] = code(w)
		}
		return strings.Join(all, ", ")
	}
	text := v.Tag.Get("allowed")
	bounds, found := v.Tag.Lookup("range")
	if !found {
		return text
	}
	low, high, _ := strings.Cut(bounds, "..")
	limits := code(low) + " to " + code(high)
	if word := v.Tag.Get("word"); word != "" {
		limits += ", or " + code(word)
	}
	switch {
	case text != "":
		return text + "; each " + limits
	case v.value.Type() == reflect.TypeFor[Size]():
		return "a size from " + limits
	case v.value.Type() != reflect.TypeFor[time.Duration]():
		return limits
	case v.Tag.Get("unit") != "":
		limits += ", whole " + units[v.Tag.Get("unit")]
	}
	return "a duration from " + limits
}
