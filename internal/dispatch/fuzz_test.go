package dispatch

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

// trickle gives out a few bytes at a time: where a read ends must make no difference.
type trickle struct {
	b    []byte
	step int
}

func (r *trickle) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.b)
	r.b = r.b[n:]
	return n, nil
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"0", "120", "1e99", "-1", "Wed, 01 Jul 2026 12:00:00 GMT", "Wed, 01 Jul 2026 12:00:30 GMT", "Wednesday, 01-Jul-26 12:00:00 GMT", "Wed Jul  1 12:00:00 2026", "99999999999999999999"} {
		f.Add(s)
	}
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		got := retryAfter([]byte(s), now)
		n, err := strconv.ParseUint(s, 10, 63)
		date, dateErr := http.ParseTime(s)
		digits := s != "" && strings.Trim(s, "0123456789") == ""
		if want := digits || dateErr == nil && len(s) <= 40; got >= 0 != want {
			t.Fatalf("%q: got %v, understood %v", s, got, want)
		}
		if got < 0 {
			return
		}
		want := time.Hour
		switch {
		case digits && err == nil:
			want = time.Duration(min(n, 3600)) * time.Second
		case !digits:
			want = max(0, min(date.Sub(now), time.Hour))
		}
		if got = min(got, time.Hour); got != want {
			t.Fatalf("%q: got %v, want %v", s, got, want)
		}
	})
}

// FuzzRequest parses what was encoded with net/http's reader: whatever the message holds, the app must see exactly one
// request, its body byte for byte, and no header outside the set the contract names.
func FuzzRequest(f *testing.F) {
	f.Add("text/plain", "id", "key", "X-A", "a\r\nX-Injected: 1", []byte("body"), []byte("\x00\x01\x02\x03"), uint8(0))
	f.Add("a\r\nb", "\x00", "ü", "cloudEvents_id", "%", []byte(""), []byte("\x0e\x0f\x0d\x0d\x00\x10\x0e"), uint8(1))
	f.Add("", "", "", "Content-Length", "999", []byte("GET / HTTP/1.1\r\n\r\n"), []byte("\x05\xff\xff\x06\x7f\xf0\x07"), uint8(3))
	f.Add("text/plain", "id", "key", "n", "v", []byte("{}"), []byte("\x00"), uint8(8))
	f.Add("x", "y", "z", "x_retry_count", "5", []byte("b"), []byte("\x0b\x80\x00\x00\x00\x00\x00\x00\x00\x0c\xff\x01"), uint8(2))
	f.Fuzz(func(t *testing.T, contentType, id, key, name, value string, body, tree []byte, flags uint8) {
		o := Options{
			URL: "http://app.example/in", CloudEvents: flags&1 != 0, Envelopes: flags&8 != 0, Token: func() string { return id },
			Forward: []string{"*"}, Passthrough: []string{}, Version: value, Logger: slog.New(slog.DiscardHandler),
		}
		if flags&2 != 0 {
			o.Passthrough = []string{"*"}
		}
		target := newTarget(t, o.URL, func(p *Options) { *p = o; p.IdleTimeout, p.MaxIdle = 1, 1 })
		v := brokertest.Value(&tree)
		m := &message.Message{
			Body: body, ContentType: contentType, ContentEncoding: value, MessageID: id, CorrelationID: value, ReplyTo: key,
			Type: value, AppID: name, UserID: key, Expiration: value, Priority: flags, Queue: name, Exchange: value,
			RoutingKey: key, Timestamp: time.Unix(int64(len(tree))*math.MaxInt32*int64(flags), 0), RetryCount: int(flags), MaxRetries: 3,
			Trace:   message.TraceContext{Traceparent: id, Tracestate: value, Baggage: key},
			Headers: amqp.Table{name: value, key: v, value: id, "t": []any{v, value}, "cloudEvents:" + name: v},
		}
		x := newAttempt(&Target{}, time.Time{})
		defer x.release()
		left := x.request.encode(target, m, "")
		raw := append(slices.Clone(x.request.out), body...)
		if x.request.encode(target, m, ""); !bytes.Equal(raw[:len(raw)-len(body)], x.request.out) {
			t.Fatal("encoding the same message twice gave two requests")
		}
		wantOneRequest(t, raw, body, left, &o)
	})
}

func wantOneRequest(t *testing.T, raw, body []byte, left int, o *Options) {
	in := bufio.NewReaderSize(bytes.NewReader(raw), max(16, len(raw)))
	r, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("not a request: %v\n%q", err, raw)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || !bytes.Equal(got, body) || in.Buffered() > 0 {
		t.Fatalf("body %q (%v), %d bytes behind it, want %q", got, err, in.Buffered(), body)
	}
	if r.Method != http.MethodPost || r.RequestURI != "/in" || r.Host != "app.example" || r.Close || len(r.TransferEncoding) > 0 {
		t.Fatalf("%s %s to %s, close %v, %v", r.Method, r.RequestURI, r.Host, r.Close, r.TransferEncoding)
	}
	own := 0
	for name, values := range r.Header {
		if !allowed(name, o) || len(values) != 1 {
			t.Fatalf("header %s: %q", name, values)
		}
		for i := range len(values[0]) {
			if c := values[0][i]; c < 0x20 || c > 0x7e {
				t.Fatalf("header %s: %q", name, values[0])
			}
		}
		if strings.HasPrefix(name, headerPrefix) {
			own += len(name) + len(values[0]) + len(": \r\n")
		}
	}
	if own > maxHeaderBytes {
		t.Fatalf("%d bytes of headers", own)
	}
	if counted := r.Header.Get("Amqp-Headers-Truncated"); left > 0 != (counted != "") || left > 0 && counted != strconv.Itoa(left) {
		t.Fatalf("left out %d, header %q", left, counted)
	}
}

var bareAllowed = []string{
	"User-Agent", "Authorization", "Content-Type", "Content-Length", "Content-Encoding", "Traceparent", "Tracestate", "Baggage",
}

// allowed says whether the contract has a header, as net/http spells it.
func allowed(name string, o *Options) bool {
	switch {
	case strings.HasPrefix(name, "Amqp-"), slices.Contains(bareAllowed, name):
		return true
	case o.CloudEvents && strings.HasPrefix(name, "Ce-"):
		return true
	}
	return len(o.Passthrough) > 0 && !deniedBare([]byte(name))
}
