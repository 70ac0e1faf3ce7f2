package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// fileSuffix makes the name of the variable that names a secret's file.
const fileSuffix = "_FILE"

// Section is one struct of Config and the variables that fill it.
type Section struct {
	Title     string
	Field     string // of Config; its type has the same name
	Variables []*Variable

	prefix string // of the names
	target any    // pointer to the struct
}

// Variable is one environment variable: its tags, the value that was set, and the field for it.
type Variable struct {
	Name   string // in full
	Field  string // of the section's struct
	Tag    reflect.StructTag
	Scoped bool // it can be set for one subscription

	value reflect.Value // the field itself

	from string // name of the variable that the value is from
	raw  string // as set; "" when it was not
	text string // raw with the name of the subscription
	file string // path, when the file variant was set instead
	bad  bool   // a problem was found

	wrong error // why the text could not be parsed
}

func (v *Variable) secret() bool { return v.value.Type() == reflect.TypeFor[Secret]() }

// FileVariant returns the name of the variable that may name a file instead, "" if there is none.
func (v *Variable) FileVariant() string {
	if v.secret() && strings.HasPrefix(v.Name, prefix) {
		return v.from + fileSuffix
	}
	return ""
}

// key is the name as the problem's line shows it: that of the file variant where the file variant was set.
func (v *Variable) key() string {
	if v.file != "" && v.text == "" {
		return v.FileVariant()
	}
	return v.from
}

// shown is the value as a problem may repeat it.
func (v *Variable) shown() string {
	switch {
	case v.file != "" && v.text == "":
		return shownPath(v.file)
	case v.text == "":
		return ""
	case v.secret() || urlWithUser(v.text): // the latter where no password belongs
		return masked
	}
	return shown(v.public(v.raw))
}

// public is the value of a variable that is not a secret, without what must not be shown even where it does not belong:
// a URL with a user, and what follows a '?' or '#' in a variable that holds a URL or a path, because keys are passed
// there.
func (v *Variable) public(text string) string {
	if urlWithUser(text) {
		return masked
	}
	if at := strings.IndexAny(text, "?#"); at >= 0 && v.Tag.Get("mask") == "query" {
		return text[:at+1] + masked
	}
	return text
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

// Describe lists every variable that Load reads, for the documentation.
func Describe() []Section { return sections(&Config{}) }

// sections lists what the struct says, in order.
func sections(c *Config) []Section {
	var all []Section
	for f, target := range reflect.ValueOf(c).Elem().Fields() {
		title, found := f.Tag.Lookup("section")
		if !found {
			continue
		}
		s := Section{Title: title, Field: f.Name, prefix: f.Tag.Get("prefix"), target: target.Addr().Interface()}
		own := f.Tag.Get("scope") == "subscription"
		for g, value := range target.Fields() {
			name := s.prefix + g.Tag.Get("env")
			s.Variables = append(s.Variables, &Variable{
				Name: name, Field: g.Name, Tag: g.Tag, value: value, from: name, Scoped: own && g.Tag.Get("scope") == "",
			})
		}
		all = append(all, s)
	}
	return all
}

// check checks the text that was set, and makes a secret of it where the field is one.
func (v *Variable) check() error {
	switch {
	case v.secret():
		return v.readSecret(cmp.Or(v.text, v.Tag.Get("envDefault")))
	case v.wrong != nil && v.Name != subscriptions: // its check lists all wrong names
		return v.wrong
	case v.text == "" && v.Tag.Get("otherwise") == "required":
		return errors.New("required and not set")
	case v.text == "": // defaults are within the rules; a test says so
		return nil
	}
	if err := v.breaks(); err != nil {
		return err
	}
	if check := checks[v.Tag.Get("check")]; check != nil {
		return check(v.text)
	}
	return nil
}

// readSecret puts a handle on the text or on the file into the field, and reads the file once.
func (v *Variable) readSecret(text string) error {
	if v.file != "" && v.text != "" {
		return fmt.Errorf("set together with %s: only one of them can count", v.FileVariant())
	}
	if v.file == "" && text == "" {
		return nil
	}
	s := &source{name: v.FileVariant(), path: v.file, value: text, check: checks[v.Tag.Get("check")]}
	v.value.Set(reflect.ValueOf(newSecret(s)))
	value, err := s.current()
	if v.file == "" && s.check != nil {
		err = s.check(value)
	}
	return err
}

// require returns a check that ok judges.
func require(ok func(string) bool, otherwise string) func(string) error {
	return func(text string) error {
		if !ok(text) {
			return errors.New(otherwise)
		}
		return nil
	}
}

// inTurn returns a check that fails with the first error of several.
func inTurn(checks ...func(string) error) func(string) error {
	return func(text string) error {
		for _, check := range checks {
			if err := check(text); err != nil {
				return err
			}
		}
		return nil
	}
}

// parses returns a check that parse judges.
func parses[T any](parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		_, err := parse(text)
		return err
	}
}

// checks judge the text of variables, where other tags cannot, by their tag check. Those of secrets also judge values
// that are read later: their errors repeat no part of the text.
var checks = map[string]func(text string) error{
	"service":       inTurn(require(serviceName.MatchString, "not a service name"), checkReserved),
	"subscriptions": checkSubscriptions,
	"amqp":          checkAMQPURLs,
	// SASL PLAIN separates its fields by NUL.
	"credential":  require(func(v string) bool { return !strings.ContainsRune(v, 0) }, "holds a NUL byte"),
	"certificate": checkCertificateFile,
	"host":        require(validHost, "not a host name"),
	"management":  parses(parseManagementURL),
	"app":         parses(parseAppURL),
	"token":       checkToken,
	"path":        checkHTTPPath,
	"directory":   require(absolute, "not an absolute path"),
	"mediatype":   checkMediaType,
	"order":       require(isOrderKey, "not one of the words, and not a header"),
	"name":        checkName,
	"exchange":    checkExchange,
	"headers":     parses(headerPatterns), // the dispatch knows which names it sets for no message
	"listener":    checkAddr,
	"longtoken":   checkControlToken,
	"table":       require(isTable, "is not the name of a table"),
	"columns":     checkColumns,
	"aliases":     checkAliases,
	"keys":        func(v string) error { return checkItems(itemsOf(v)...) },
}

func isOrderKey(by string) bool {
	header, isHeader := strings.CutPrefix(by, "header:")
	return isHeader && header != "" && len(header) <= maxName ||
		slices.Contains([]string{"routing-key", "correlation-id", "queue"}, by)
}

// absolute also accepts a path without a drive, as the defaults are: on Windows it is one of the current drive.
func absolute(path string) bool { return filepath.IsAbs(path) || strings.HasPrefix(path, "/") }

// Setting is one variable as it is in effect.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`  // secrets and the query of a URL are masked; "" when nothing is set, or when the topology decides
	Origin string `json:"origin"` // default, environment, derived, preset, or "file:" and a path

	// Variable that says the value; empty when none does, and without subscriptions.
	Variable string `json:"variable,omitempty"`

	Own     bool `json:"-"` // other subscriptions may have another value
	Changed bool `json:"-"` // it is set, and not to the default
}

// Effective lists every variable in the order of the documentation.
func (c *Config) Effective() []Setting { return slices.Clone(c.settings) }

func (l *loader) setting(v *Variable) Setting {
	s := Setting{Name: v.Name}
	s.Origin, s.Value = l.origin(v)
	if v.Tag.Get("alias") != "" {
		s.Name = v.from
	}
	s.Own = v.Scoped && l.cfg.Subscription != ""
	isSet := v.raw != "" || v.file != ""
	s.Changed = v.file != "" || isSet && cmp.Or(v.text, v.raw) != v.Tag.Get("envDefault")
	if l.cfg.Subscription != "" && isSet {
		s.Variable = v.key()
	}
	switch {
	case !v.secret() || s.Value == "" && v.file == "":
	case v.Name == "SIDECAR_AMQP_URL":
		list, _ := l.cfg.AMQP.URL.Value() // with an error comes the last good value
		s.Value = redactURLs(list)
	case v.Name == managementURL:
		raw, _ := l.cfg.AMQP.ManagementURL.Value()
		s.Value = redactURL(raw)
	default:
		s.Value = masked
	}
	return s
}

// origin returns where the value of v comes from, and the value.
func (l *loader) origin(v *Variable) (origin, value string) {
	value = v.public(cmp.Or(v.text, v.raw))
	switch {
	case v.file != "":
		return "file:" + v.file, value
	case l.cfg.Plan != nil && v.Tag.Get("plan") != "":
		return "file:" + l.cfg.Topology.PlanFile, v.Tag.Get("plan")
	case v.Name == "SIDECAR_CONCURRENCY" && l.cfg.Retry.OrderBy == "queue": // see checkWindow
		return "derived", "1"
	case v.raw != "":
		return "environment", value
	case v.Tag.Get("preset") != "":
		return "preset", value
	case v.Tag.Get("derived") != "":
		return "derived", fmt.Sprint(v.value)
	}
	return "default", v.Tag.Get("envDefault")
}
