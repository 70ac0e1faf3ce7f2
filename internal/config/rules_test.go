package config

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTagsAreSound holds the structs to what the rest of the package takes for granted.
func TestTagsAreSound(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	known := map[string]bool{}
	for _, s := range sections(&Config{}) {
		f, _ := reflect.TypeFor[Config]().FieldByName(s.Field)
		prefix := f.Tag.Get("prefix")
		if s.Title == "" || prefix == "" {
			t.Errorf("%s has no title or no prefix", s.Field)
		}
		if f.Type.Name() != s.Field {
			t.Errorf("Config.%s has the type %s: Describe takes them for the same", s.Field, f.Type.Name())
		}
		for _, v := range s.Variables {
			if v.Name == prefix || names[v.Name] {
				t.Errorf("%s.%s: no name, or one that is taken: %q", s.Field, v.Field, v.Name)
			}
			names[v.Name] = true
			if v.Allowed(plain) == "" {
				t.Errorf("%s: nothing says what is allowed", v.Name)
			}
			if bounds, found := v.Tag.Lookup("range"); found {
				if low, high := v.bounds(bounds); low >= high {
					t.Errorf("%s: range %q", v.Name, bounds)
				}
			}
			if check, found := v.Tag.Lookup("check"); found && checks[check] == nil {
				t.Errorf("%s: there is no check %q", v.Name, check)
			}
			if d, found := v.Tag.Lookup("envDefault"); found {
				known[v.Name+"="+d] = true
			}
		}
	}
	// A default must be as good as a value: everything set to its default loads.
	for set := range known {
		load(t, set)
	}
}

// TestTagsAreKept: the value before the range of a variable, the one behind it, and one that is not among its words are
// refused with what is allowed; the ends of the range are not out of it. docs/configuration.md says the same tags, and a
// test of scripts/gendoc compares it with them.
func TestTagsAreKept(t *testing.T) {
	t.Parallel()
	for _, s := range sections(&Config{}) {
		for _, v := range s.Variables {
			if words, found := v.Tag.Lookup("oneof"); found {
				word, _, _ := strings.Cut(words, "|")
				refuseSaying(t, "not one of the words; allowed: "+v.Allowed(plain), v.Name, collector, v.Name+"="+strings.ToUpper(word))
			}
			bounds, found := v.Tag.Lookup("range")
			if !found {
				continue
			}
			low, high := v.bounds(bounds)
			step := int64(1)
			if v.value.Type() == reflect.TypeFor[Millis]() {
				step = int64(time.Millisecond)
			}
			for _, n := range []int64{low - step, high + step} {
				refuseSaying(t, "; allowed: "+v.Allowed(plain), v.Name, collector, v.Name+"="+v.texted(n))
			}
			for _, n := range []int64{low, high} {
				_, err := Load([]string{"SIDECAR_SERVICE=a-b", collector, v.Name + "=" + v.texted(n)}, 0)
				if err != nil && strings.Contains(err.Error(), "out of range") {
					t.Errorf("%d: %v", n, err)
				}
			}
		}
	}
}

// texted is a number as somebody sets it: the opposite of numbers.
func (v *Variable) texted(n int64) string {
	switch v.value.Type() {
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[[]time.Duration]():
		return time.Duration(n).String()
	case reflect.TypeFor[Millis]():
		return strconv.FormatInt(n/int64(time.Millisecond), 10)
	}
	return strconv.FormatInt(n, 10)
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"0": 0, "1": 1, "1000": 1000, "1KiB": 1024, "1024": 1024, "3MiB": 3 << 20, "2GiB": 2 << 30} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if again, err := ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%s prints as %s", text, got)
		}
	}
}
