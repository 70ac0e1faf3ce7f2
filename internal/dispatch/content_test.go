package dispatch

import (
	"cmp"
	"strings"
	"testing"

	"sidecar/internal/message"
)

// TestContentOfOtherProducers: what producers leave out or name in their own way arrives as an app expects it.
func TestContentOfOtherProducers(t *testing.T) {
	t.Parallel()
	const value = "\x00\x53\x77"
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		encoding, contentType, kind, body string
		want                              map[string]string // "" = absent
		app                               string            // body that the app gets, "" = the same
	}{
		"Celery":                 {"utf-8", "application/json", "", `{}`, map[string]string{"Content-Encoding": "", "Amqp-Content-Encoding": "utf-8"}, ""},
		"binary":                 {"binary", "", "", "x", map[string]string{"Content-Encoding": "", "Amqp-Content-Encoding": "binary"}, ""},
		"one of two":             {"gzip, utf-8", "", "", "x", map[string]string{"Content-Encoding": "", "Amqp-Content-Encoding": "gzip, utf-8"}, ""},
		"a blank behind":         {"gzip ", "", "", "x", map[string]string{"Content-Encoding": "", "Amqp-Content-Encoding": "gzip%20"}, ""},
		"a letter above ASCII":   {"gzİp", "", "", "x", map[string]string{"Content-Encoding": ""}, ""},
		"an empty item":          {"gzip,,br", "", "", "x", map[string]string{"Content-Encoding": ""}, ""},
		"a log":                  {"", "", "", "[2026]" + strings.Repeat("x", 1<<20), map[string]string{"Content-Type": octetStream}, ""},
		"UTF-16":                 {"", "", "", "{\x00}\x00", map[string]string{"Content-Type": octetStream}, ""},
		"codings":                {"GZIP , br", "", "", "x", map[string]string{"Content-Encoding": "GZIP , br", "Amqp-Content-Encoding": ""}, ""},
		"none":                   {"", "", "", "x", map[string]string{"Content-Encoding": "", "Amqp-Content-Encoding": "", "Content-Type": octetStream}, ""},
		"object":                 {"", "", "", " {\"a\":1,\"a\":2}\n", map[string]string{"Content-Type": "application/json"}, ""},
		"array":                  {"", "", "", `[]`, map[string]string{"Content-Type": "application/json"}, ""},
		"scalar":                 {"", "", "", `"text"`, map[string]string{"Content-Type": octetStream}, ""},
		"two objects":            {"", "", "", `{}{}`, map[string]string{"Content-Type": octetStream}, ""},
		"not UTF-8":              {"", "", "", "{\"a\":\"\xff\"}", map[string]string{"Content-Type": octetStream}, ""},
		"bunny":                  {"", "application/octet-stream", "", `{}`, map[string]string{"Content-Type": "application/json"}, ""},
		"bytes":                  {"", octetStream, "", "x", map[string]string{"Content-Type": octetStream}, ""},
		"typed":                  {"", "text/plain", "", `{}`, map[string]string{"Content-Type": "text/plain"}, ""},
		"1 MiB":                  {"", "", "", "{" + strings.Repeat(" ", 1<<20-2) + "x", map[string]string{"Content-Type": octetStream}, ""},
		"over 1 MiB":             {"", "", "", "{" + strings.Repeat(" ", 1<<20) + "x}", map[string]string{"Content-Type": "application/json"}, ""},
		"AMQP 1.0 text":          {"", "", "amqp-1.0", value + "\xa1\x07{\"a\":1}", map[string]string{"Amqp-Type": "", "Content-Type": "application/json"}, `{"a":1}`},
		"AMQP 1.0 binary":        {"", "", "amqp-1.0", value + "\xa0\x01x", map[string]string{"Amqp-Type": "", "Content-Type": octetStream}, "x"},
		"AMQP 1.0 long text":     {"", "", "amqp-1.0", value + "\xb1\x00\x00\x01\x2c" + long, map[string]string{"Amqp-Type": ""}, long},
		"AMQP 1.0 cut":           {"", "", "amqp-1.0", value + "\xb1\x00\x00\x01\x2d" + long, map[string]string{"Amqp-Type": "amqp-1.0"}, ""},
		"AMQP 1.0 cut in length": {"", "", "amqp-1.0", value + "\xb1\x00\x00", map[string]string{"Amqp-Type": "amqp-1.0"}, ""},
		"AMQP 1.0 two sections":  {"", "", "amqp-1.0", value + "\xa1\x01x" + value + "\xa1\x01y", map[string]string{"Amqp-Type": "amqp-1.0"}, ""},
		"AMQP 1.0 map":           {"", "", "amqp-1.0", value + "\xc1\x01\x00", map[string]string{"Amqp-Type": "amqp-1.0"}, ""},
		"AMQP 1.0 empty":         {"", "", "amqp-1.0", "", map[string]string{"Amqp-Type": "amqp-1.0"}, ""},
		"another type":           {"", "", "", value + "\xa1\x01x", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := sample()
			m.ContentEncoding, m.ContentType, m.Type, m.Body = c.encoding, c.contentType, c.kind, []byte(c.body)
			app, target := listen(t, 204, func(o *Options) { o.DefaultType = "auto" })
			wantStatus(t, dispatch(t, target, m), 204)
			r := app.Requests()[0]
			wantHeaders(t, r.Header, c.want)
			if string(r.Body) != cmp.Or(c.app, c.body) {
				t.Errorf("body %.40q", r.Body)
			}
			if string(m.Body) != c.body || m.Type != c.kind {
				t.Error("the message itself was changed")
			}
		})
	}
}

// TestContentInBatches: a message of a batch is what it is alone.
func TestContentInBatches(t *testing.T) {
	t.Parallel()
	m := sample()
	m.ContentEncoding, m.ContentType, m.Type, m.Body = "utf-8", "", "amqp-1.0", []byte("\x00\x53\x77\xa1\x07{\"a\":1}")
	for format, want := range map[string][]string{
		"jsonl":       {`"body":{"a":1}`, `"content_type":"application/json"`, `"content_encoding":"utf-8"`},
		"cloudevents": {`"data":{"a":1}`, `"datacontenttype":"application/json"`, `"amqpcontentencoding":"utf-8"`},
	} {
		r, _, _ := postAll(t, format, []*message.Message{m}, func(o *Options) { o.DefaultType = "auto" })
		for _, part := range want {
			if !strings.Contains(string(r.Body), part) || strings.Contains(string(r.Body), "amqp-1.0") {
				t.Errorf("%s: no %s in %s", format, part, r.Body)
			}
		}
	}
}
