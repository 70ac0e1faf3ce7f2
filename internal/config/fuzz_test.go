package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad puts any value into any variable: Load must not panic, must stay on one line per problem, and must not show
// what was put into a secret. A secret's value gets a canary in its middle, and is given once directly and once in a
// file; so does the value of a name that does not exist, which may be a secret's name mistyped.
func FuzzLoad(f *testing.F) {
	known := map[string]*Variable{}
	for _, s := range sections(&Config{}) {
		for _, v := range s.Variables {
			known[v.Name] = v
			f.Add(v.Name, v.Tag.Get("envDefault"), "")
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name, before, after string) {
		v, found := known[name]
		if !found {
			name = strings.ReplaceAll(name, "=", "")
			if known[strings.TrimSuffix(prefix+name, fileSuffix)] != nil {
				return // known after all, and not as a secret or not by its value
			}
			fuzzLoad(t, prefix+name+"="+before+canary+after)
			return
		}
		value := before + after
		if v.secret() {
			// "://" behind a comma would begin another URL, and the text before it would be a host like any other.
			value = strings.ReplaceAll(before, "://", "") + canary + strings.ReplaceAll(after, "://", "")
		}
		if v.Name == "SIDECAR_AMQP_URL" {
			value = "amqp://u:" + value + "@h/"
		}
		if strings.HasPrefix(v.Allowed(plain), "path") { // of a file: the machine's are none of our business
			value = filepath.Join(dir, "none", fmt.Sprintf("%x", value))
		}
		fuzzLoad(t, v.Name+"="+value)
		if v.FileVariant() != "" {
			file := filepath.Join(dir, "secret")
			write(t, file, value)
			fuzzLoad(t, v.FileVariant()+"="+file)
		}
	})
}

func fuzzLoad(t *testing.T, set string) {
	t.Helper()
	c, err := Load([]string{set, "SIDECAR_SERVICE=a-b", collector}, 1<<27)
	text := fmt.Sprintf("%v %+v", err, c)
	if c != nil {
		text += fmt.Sprintf("%#v %#v %q", c, c.Effective(), c.Warnings())
	}
	if problems, ok := errors.AsType[*Errors](err); ok && strings.Count(err.Error(), "\n") != len(problems.Problems)-1 {
		t.Errorf("%d problems on other than %[1]d lines: %q", len(problems.Problems), err)
	}
	if strings.Contains(text, canary) {
		t.Errorf("%q shows its secret: %s", set, text)
	}
}
