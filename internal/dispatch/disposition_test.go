package dispatch

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

// answered dispatches one message to an app that gives the raw answer.
func answered(tb testing.TB, raw string, changes ...func(*Options)) message.Outcome {
	tb.Helper()
	return scripted(tb, apptest.Answer(raw), changes...)
}

// scripted dispatches one message to an app with the script.
func scripted(tb testing.TB, script func(*apptest.Conn), changes ...func(*Options)) message.Outcome {
	tb.Helper()
	return dispatch(tb, newTarget(tb, apptest.Listen(tb, script).URL, changes...), sample())
}

func TestDisposition(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]struct {
		d       message.Disposition
		unknown bool
	}{
		"":                                               {message.DispositionNone, false},
		"Amqp-Disposition: ack":                          {message.DispositionAck, false},
		"amqp-disposition:RETRY":                         {message.DispositionRetry, false},
		"Amqp-Disposition: \tpark ":                      {message.DispositionPark, false},
		"Amqp-Disposition: Requeue":                      {message.DispositionRequeue, false},
		"Amqp-Disposition: discard":                      {message.DispositionDiscard, false},
		"Amqp-Disposition: drop":                         {message.DispositionNone, true},
		"Amqp-Disposition: ack, ack":                     {message.DispositionAck, false},
		"Amqp-Disposition: ,Park,":                       {message.DispositionPark, false},
		"Amqp-Disposition: ack ack":                      {message.DispositionNone, true},
		"Amqp-Disposition:":                              {message.DispositionNone, false},
		"Amqp-Disposition: ack\r\nAmqp-Disposition: ack": {message.DispositionAck, false},
		"Amqp-Disposition: x\r\nAmqp-Disposition: y":     {message.DispositionNone, true},
	} {
		o := answered(t, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n"+header+"\r\n\r\n")
		wantStatus(t, o, 500)
		if o.Disposition != want.d || o.Unknown != want.unknown {
			t.Errorf("%q: got %d, unknown %v, want %d, %v", header, o.Disposition, o.Unknown, want.d, want.unknown)
		}
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"":                             "",
		"stock is empty":               "stock is empty",
		"größe\x80\xff fehlt":          "größe fehlt",
		"a\tb":                         "a b",
		"right\u202eleft\u0085x":       "rightleftx",
		strings.Repeat("x", 300):       strings.Repeat("x", 256),
		strings.Repeat("é", 200):       strings.Repeat("é", 128),
		"x" + strings.Repeat("é", 200): "x" + strings.Repeat("é", 127),
	} {
		o := answered(t, apptest.Status(422, "Amqp-Reason: "+value))
		wantStatus(t, o, 422)
		if o.Detail != want || !utf8.ValidString(o.Detail) {
			t.Errorf("%q: got %q, want %q", value, o.Detail, want)
		}
	}
	// A control character other than a tab makes the header line, and so the answer, malformed.
	wantFailure(t, answered(t, apptest.Status(422, "Amqp-Reason: a\x1bb")), message.FailureMalformed, "header line")
}

func TestProblem(t *testing.T) {
	t.Parallel()
	const kind = "application/problem+json"
	long := strings.Repeat("d", 2000)
	for name, row := range map[string]struct {
		contentType, body string
		want              *message.Problem
	}{
		"complete":           {kind, `{"type":"urn:x","title":"T","status":422,"detail":"D","more":[1]}`, &message.Problem{Type: "urn:x", Title: "T", Detail: "D"}},
		"with a charset":     {"Application/Problem+JSON; charset=utf-8", `{"title":"T"}`, &message.Problem{Title: "T"}},
		"wrong types":        {kind, `{"type":1,"title":["a"],"detail":"D"}`, &message.Problem{Detail: "D"}},
		"too long":           {kind, `{"detail":"` + long + `"}`, &message.Problem{Detail: long[:maxProblem]}},
		"control characters": {kind, `{"detail":"a\u0000\u001b[31mb\nc"}`, &message.Problem{Detail: "a[31mb c"}},
		"60 KiB":             {kind, `{"detail":"D","pad":"` + strings.Repeat("p", 60<<10) + `"}`, &message.Problem{Detail: "D"}},
		"nothing of use":     {kind, `{"status":500}`, nil},
		"not JSON":           {kind, `<html>`, nil},
		"empty":              {kind, ``, nil},
		"too deep":           {kind, strings.Repeat("[", 20000), nil},
		"plain JSON":         {"application/json", `{"title":"secret"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for framing, raw := range framings(row.body) {
				o := answered(t, "HTTP/1.1 422 No\r\nContent-Type: "+row.contentType+"\r\n"+raw)
				wantStatus(t, o, 422)
				switch {
				case row.want == nil && o.Problem != nil:
					t.Errorf("%s: got %+v, want none", framing, *o.Problem)
				case row.want != nil && (o.Problem == nil || *o.Problem != *row.want):
					t.Errorf("%s: got %+v, want %+v", framing, o.Problem, *row.want)
				}
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"0":                               0,
		"7":                               7 * time.Second,
		" 7 ":                             7 * time.Second,
		"301":                             5 * time.Minute,
		"99999999999999999999999999999":   5 * time.Minute,
		"+1":                              -1,
		"":                                -1,
		strings.Repeat("Thu", 20):         -1,
		"7, 8":                            -1,
		"Thu, 01 Jan 1970 00:00:00 GMT":   0,
		"Fri, 31 Dec 9999 23:59:59 GMT":   5 * time.Minute,
		"Friday, 31-Dec-60 23:59:59 GMT":  5 * time.Minute,
		"Fri, 31 Dec 9999 23:59:59 +0100": -1,
		"bad\r\nRetry-After: 3\r\nRetry-After: 4": 3 * time.Second,
	} {
		o := answered(t, apptest.Status(429, "Retry-After: "+value))
		wantStatus(t, o, 429)
		if o.RetryAfter != want {
			t.Errorf("%q: got %v, want %v", value, o.RetryAfter, want)
		}
	}
	o := answered(t, apptest.Status(429, "Retry-After: 2"), func(o *Options) { o.RetryAfterMax = 1500 * time.Millisecond })
	if o.RetryAfter != 1500*time.Millisecond {
		t.Errorf("capped below a second: got %v", o.RetryAfter)
	}
}

func TestPlaceOfALocation(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("p", 3000)
	for location, want := range map[string]string{
		"":                            "",
		"/":                           "/",
		"https://app.example/events/": "https://app.example/events/",
		"https://user:secret@login.example:8443/sign-in?next=/msg/1&token=t#top": "https://login.example:8443/sign-in",
		"/login?next=/msg/1":                   "/login",
		"?next=/msg/1":                         "",
		"login;jsessionid=0123?x":              "login",
		"//other.example/a%20b":                "//other.example/a%20b",
		"https://u:p?a@login.example/":         "", // the password is not cut in two
		"https://user:12;secret@login.example": "https://login.example",
		"mailto:a@example.com":                 "",
		"https://login.example/\x1b[2J":        "",
		"https://login.example/\u202eevil/ü":   "https://login.example/%E2%80%AEevil/%C3%BC",
		"https://login.example/a%2":            "https://login.example/a",
		"https://login.example/a%zz/b":         "",
		"https://login.example/" + long:        "https://login.example/" + long[:maxShown-len("https://login.example/")],
		"https://login.example/" + long + "%2": "https://login.example/" + long[:maxShown-len("https://login.example/")],
	} {
		if got := shownLocation([]byte(location[:min(len(location), maxLocation)])); got != want {
			t.Errorf("%.80q: %q, want %q", location, got, want)
		}
	}
}

// B13: an answer of a few kilobytes that says it is ten megabytes of zeros is taken as it comes.
func TestCompressedAnswerIsNotInflated(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	if _, err := w.Write(make([]byte, 4<<20)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	s := apptest.Listen(t, apptest.Answer(apptest.Full(500, bomb.String(), "Content-Type: application/problem+json", "Content-Encoding: gzip")))
	target := newTarget(t, s.URL)
	for range 3 {
		o := dispatch(t, target, sample())
		wantStatus(t, o, 500)
		if o.Problem != nil {
			t.Errorf("a problem was read: %+v", o.Problem)
		}
	}
	wantSeen(t, s, 1, 3) // the body is read to its end
}
