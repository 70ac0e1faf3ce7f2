package dispatch

import (
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

func kept(limit int) func(*Options) { return func(o *Options) { o.Answer = limit } }

// TestFailingAnswersAreKeptAsText: what the app said is kept if a person can read it, else its type and size.
func TestFailingAnswersAreKeptAsText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ headers, body, want string }{
		"text":                  {"text/plain", "out of stock", "out of stock"},
		"json":                  {"Application/JSON", `{"error":"x"}`, `{"error":"x"}`},
		"problem in xml":        {"application/problem+xml", "<a/>", "<a/>"},
		"a form":                {"application/x-www-form-urlencoded", "error=x", "error=x"},
		"an image":              {"image/png", "\x89PNG", "(not text: image/png, 4 bytes)"},
		"bytes":                 {"application/octet-stream", "hello", "(not text: application/octet-stream, 5 bytes)"},
		"compressed":            {"text/plain\r\nContent-Encoding: gzip", "\x1f\x8b", "(not text: compressed text/plain, 2 bytes)"},
		"compressed, and more":  {"text/plain\r\nContent-Encoding: gzip\r\nContent-Encoding: identity", "\x1f\x8b", "(not text: compressed text/plain, 2 bytes)"},
		"not compressed":        {"text/plain\r\nContent-Encoding: Identity", "x", "x"},
		"without a type":        {"", "plain\r\nwords ü", "plain\\x0d\nwords ü"},
		"a malformed type":      {"nonsense///", "why", "(not text: nonsense///, 3 bytes)"},
		"control bytes":         {"text/plain", "a\tb\nc\rd\x1b[31m\x00\x7f", `a` + "\tb\nc" + `\x0dd\x1b[31m\x00\x7f`},
		"control bytes of C1":   {"text/plain", "a\u009bb", `a\xc2\x9bb`},
		"not UTF-8":             {"text/plain; charset=utf-8", "a\xffb\xc3", `a\xffb\xc3`},
		"a replacement is text": {"text/plain", "a\uFFFDb", "a\uFFFDb"},
		"Latin-1":               {`text/plain; charset="ISO-8859-1"`, "caf\xe9\x85", "café\\x85"},
		"another charset":       {"text/plain; charset=windows-1252", "caf\xe9", `caf\xe9`},
		"UTF-16":                {"text/plain; charset=utf-16", "a\x00", "(not text: text/plain; charset=utf-16, 2 bytes)"},
		"nothing":               {"text/plain", "", ""},
		"two types":             {"text/plain\r\nContent-Type: image/png", "x", "(not text: image/png, 1 bytes)"},
		"a type that is long":   {"text/" + strings.Repeat("x", 200), "x", "x"},
	} {
		var headers []string
		if c.headers != "" {
			headers = []string{"Content-Type: " + c.headers}
		}
		o := answered(t, apptest.Full(500, c.body, headers...), kept(1024))
		if wantStatus(t, o, 500); o.Answer != c.want {
			t.Errorf("%s: %q, want %q", name, o.Answer, c.want)
		}
	}
}

// TestOnlyFailingAnswersAreKept: a message is never parked after the others.
func TestOnlyFailingAnswersAreKept(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"200": false, "500": true, "422": true, "302": true, "425": true, "999": true,
		"200 ack": false, "200 discard": false, "200 park": true, "200 retry": true, "200 requeue": true, "200 unknown": false,
		"500 ack": false, "500 discard": false, "500 park": true, "500 unknown": true,
	} {
		status, disposition, _ := strings.Cut(name, " ")
		raw := "HTTP/1.1 " + status + " X\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nAmqp-Disposition: " + disposition + "\r\n\r\nwhy"
		for _, limit := range []int{0, 1024} {
			o := answered(t, raw, kept(limit))
			if o.Failure != message.FailureNone || o.Answer != "" != (want && limit > 0) {
				t.Errorf("%s, limit %d: %q, %v", name, limit, o.Answer, o.Err)
			}
		}
	}
	for status, want := range map[string]string{"RETRY": `{"status":"RETRY"}`, "DROP": `{"status":"DROP"}`, "SUCCESS": ""} {
		o := answered(t, apptest.Full(200, `{"status":"`+status+`"}`, "Content-Type: application/json"), dapr, kept(1024))
		if wantStatus(t, o, 200); o.Answer != want {
			t.Errorf("dapr %s: %q", status, o.Answer)
		}
	}
	if o := answered(t, "nonsense", kept(1024)); o.Answer != "" || o.Failure == message.FailureNone {
		t.Errorf("no answer: %+v", o)
	}
}

// TestAnswersAreCut: the limit counts what is kept, and no character and no escape is cut. Of an answer that is not read to
// its end, the beginning is kept, however it is framed.
func TestAnswersAreCut(t *testing.T) {
	t.Parallel()
	const text, problem = "text/plain", "application/problem+json"
	for _, c := range []struct {
		limit      int
		kind       string
		body, want string
	}{
		{3, text, "abc", "abc"}, {3, text, "abcd", "abc"}, {3, text, "abü", "ab"}, {4, text, "abü", "abü"}, {1, text, "ü", ""},
		{5, text, "ab\x00", "ab"}, {6, text, "ab\x00", `ab\x00`}, {5, text, "ab\u009b", "ab"}, {3, text, "ab€€€", "ab"},
		{4096, text, "a" + strings.Repeat("ü", 3000), "a" + strings.Repeat("ü", 2047)},
		{4096, text, strings.Repeat("\x00", 2000), strings.Repeat(`\x00`, 1024)},
		{4096, text, strings.Repeat("x", 4096), strings.Repeat("x", 4096)},
		{4096, text, strings.Repeat("x", 4097), strings.Repeat("x", 4096)},
		{4096, text, strings.Repeat("x", http1.MaxBody+1), strings.Repeat("x", 4096)},
		{1024, problem, strings.Repeat("x", http1.MaxBody+1), strings.Repeat("x", 1024)},
		{1 << 20, text + "; charset=" + latin1, strings.Repeat("\xe9", 6000), strings.Repeat("é", 4096)},
		{10, "image/png", "12345", "(not text:"},
	} {
		for framing, raw := range framings(c.body) {
			o := answered(t, "HTTP/1.1 500 X\r\nContent-Type: "+c.kind+"\r\n"+raw, kept(c.limit))
			if wantStatus(t, o, 500); o.Answer != c.want {
				t.Errorf("%d bytes of %.20q by %s: %.40q, %d bytes, want %d", c.limit, c.body, framing, o.Answer, len(o.Answer), len(c.want))
			}
		}
	}
}

// TestAnswersAreNotMixed: what one answer said does not hold for the next one on the connection, nor what an interim answer
// said for the answer.
func TestAnswersAreNotMixed(t *testing.T) {
	t.Parallel()
	const problem = "Content-Type: application/problem+json"
	answers := []struct {
		raw, text, title string
		said             said
	}{
		{raw: apptest.Full(500, strings.Repeat("x", 2000), "Content-Type: image/png", "Content-Encoding: br"), text: "(not text: compressed image/png, 2000 bytes)"},
		{raw: apptest.Full(500, "why"), text: "why"},
		{raw: apptest.Full(200, "fine", "Content-Type: text/plain")},
		{raw: apptest.Status(503)},
		{raw: "HTTP/1.1 103 Early\r\nContent-Type: image/png\r\nAmqp-Disposition: park\r\nRetry-After: 9\r\nAmqp-Reason: x\r\n\r\n" + apptest.Full(500, "because"), text: "because"},
		{raw: apptest.Full(500, `{"title":"T"}`, problem), text: `{"title":"T"}`, title: "T"},
		{raw: apptest.Full(500, "", problem)},
		{raw: apptest.Full(200, `{"status":"DROP"}`), text: `{"status":"DROP"}`, said: saidDrop},
		{raw: apptest.Full(200, "")},
	}
	var next int
	s := apptest.Listen(t, func(c *apptest.Conn) {
		for {
			if _, err := c.Next(); err != nil {
				return
			}
			c.Send(answers[next].raw)
			next++
		}
	})
	target := newTarget(t, s.URL, kept(1024), dapr)
	for i, a := range answers {
		o := dispatch(t, target, sample())
		if o.Answer != a.text || heard(o) != a.said || o.RetryAfter != -1 || (o.Problem != nil) != (a.title != "") || o.Problem != nil && o.Problem.Title != a.title {
			t.Errorf("answer %d: %+v", i, o)
		}
	}
	wantSeen(t, s, 1, len(answers))
}
