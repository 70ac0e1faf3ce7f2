package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// fileSuffix makes the name of the variable that names a secret's file.
const fileSuffix = "_FILE"

// section is one struct of Config and the variables that fill it.
type section struct {
	title, field string // field of Config
	variables    []*variable
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
func sections(c *Config) []section {
	var all []section
	for f, target := range reflect.ValueOf(c).Elem().Fields() {
		title, found := f.Tag.Lookup("section")
		if !found {
			continue
		}
		s := section{title: title, field: f.Name}
		for g, value := range target.Fields() {
			s.variables = append(s.variables, &variable{
				name: f.Tag.Get("prefix") + g.Tag.Get("env"), field: g.Name, tag: g.Tag, value: value,
			})
		}
		all = append(all, s)
	}
	return all
}

// read parses the text that was set, or the default, into the field.
func (v *variable) read() error {
	text := cmp.Or(v.text, v.tag.Get("envDefault"))
	switch {
	case v.secret():
		return v.readSecret(text)
	case text == "" && v.tag.Get("otherwise") == "required":
		return errors.New("required and not set")
	case text == "":
		return nil
	}
	value, err := parsers[v.value.Type()](text)
	if err != nil {
		return err
	}
	v.value.Set(reflect.ValueOf(value))
	if v.text == "" { // defaults are within the rules; a test says so
		return nil
	}
	if err := v.breaks(); err != nil {
		return err
	}
	if check := checks[v.name]; check != nil {
		return check(text)
	}
	return nil
}

// readSecret puts a handle on the text or on the file into the field, and reads the file once.
func (v *variable) readSecret(text string) error {
	if v.file != "" && v.text != "" {
		return fmt.Errorf("set together with %s: only one of them can count", v.fileVariant())
	}
	if v.file == "" && text == "" {
		return nil
	}
	s := &source{name: v.fileVariant(), path: v.file, value: text, check: checks[v.name]}
	v.value.Set(reflect.ValueOf(newSecret(s)))
	value, err := s.current()
	if v.file == "" && s.check != nil {
		err = s.check(value)
	}
	return err
}

// checks judge the text of single variables, where tags cannot. Those of secrets also judge values that are read later:
// their errors repeat no part of the text.
var checks = map[string]func(text string) error{
	"SIDECAR_SERVICE":              checkService,
	"SIDECAR_AMQP_URL":             checkAMQPURLs,
	"SIDECAR_AMQP_USERNAME":        checkCredential,
	"SIDECAR_AMQP_PASSWORD":        checkCredential,
	"SIDECAR_AMQP_TLS_CA_FILE":     checkCertificateFile,
	"SIDECAR_AMQP_TLS_SERVER_NAME": checkHost,
	"SIDECAR_APP_URL":              checkAppURL,
	"SIDECAR_APP_TOKEN":            checkToken,
	"SIDECAR_APP_HEALTH_PATH":      checkHTTPPath,
	"SIDECAR_SPOOL_DIR":            checkDirectory,
	"SIDECAR_CRASH_DIR":            checkDirectory,
	"SIDECAR_PREFIX":               checkName,
	"SIDECAR_EXCHANGE":             checkExchange,
	"SIDECAR_QUEUE":                checkName,
	"SIDECAR_RETRY_EXCHANGE":       checkName,
	"SIDECAR_RETRY_QUEUE":          checkName,
	"SIDECAR_DLX":                  checkName,
	"SIDECAR_DLQ":                  checkName,
	"SIDECAR_FORWARD_HEADERS":      checkForwarded,
	"SIDECAR_PASSTHROUGH_HEADERS":  checkPassedThrough,
	"SIDECAR_ADMIN_ADDR":           checkAddr,
	"SIDECAR_CONTROL_ADDR":         checkAddr,
	"SIDECAR_CONTROL_TOKEN":        checkControlToken,
	"SIDECAR_CONTROL_READ_TOKEN":   checkControlToken,
	"SIDECAR_PUBLISH_ADDR":         checkAddr,
	"SIDECAR_PUBLISH_TOKEN":        checkControlToken,
	"SIDECAR_OUTBOX_TABLE":         checkTable,
	"SIDECAR_OUTBOX_COLUMNS":       checkColumns,
	"SIDECAR_OUTBOX_EXCHANGE":      checkShortString,
}
