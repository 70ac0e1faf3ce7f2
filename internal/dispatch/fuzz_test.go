package dispatch

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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

// FuzzAnswer compares the reader with net/http's. Both must agree on the status of every answer that net/http accepts,
// except where ours is stricter on purpose: see stricter. Where ours says that the connection may be used again,
// net/http must have found the end of the answer at the same byte and not want to close either. What an answer costs is bounded,
// and without memory for a large one the status is the same wherever the answer is taken.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		typicalAnswer,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nrest",
		"HTTP/1.1 204\nA: b\n c\n\n", "HTTP/1.1 304 x\r\nContent-Length: 4\r\n\r\nHTTP", "HTTP/1.1 101 x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: a, Close\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\nx",
		"HTTP/1.1 422 x\r\nContent-Type: application/problem+json\r\nContent-Length: 13\r\nRetry-After: 7\r\nAmqp-Reason: r\r\nAmqp-Disposition: park\r\n\r\n{\"title\":\"T\"}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 500 x\r\nContent-Type: application/problem+json\r\n\r\n{" + strings.Repeat(`"a":0,`, 12000) + `"title":"T"}`,
		"HTTP/1.1 200 x\r\nX: " + strings.Repeat("x", 60000) + "\r\n\r\n{\"status\":\"" + strings.Repeat(`\u0041`, 10000) + `"}`,
		"HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n", "220 mail\r\n", "",
	} {
		f.Add([]byte(seed), uint8(255))
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, step uint8) {
		x := newAttempt(nil)
		defer x.release()
		a := &x.answer
		src := &trickle{bytes.Clone(raw), int(step) + 1}
		err := a.read(src)
		wantKnownError(t, err)
		var o message.Outcome
		if err == nil {
			a.report(&o, time.Minute)
			wantBounded(t, &o)
		}

		for _, dapr := range []bool{false, true} {
			for _, limit := range []int{1, 2 * largeAnswer} {
				o, failed := readWithin(t, bytes.Clone(raw), int(step)+1, limit, dapr)
				if !dapr || !errors.Is(failed, errCutShort) { // only where the body is a part of the answer
					wantKnownError(t, failed)
				}
				if !dapr && failed == nil && (err != nil || o.Status != a.status) {
					t.Fatalf("with %d bytes status %d, without a limit %d (%v)", limit, o.Status, a.status, err)
				}
			}
		}

		theirs, rest := readReference(raw)
		switch {
		case theirs == nil:
			// Ours may accept more, an unknown transfer coding for one, but not twice on a connection.
			if err == nil && a.reusable && !bytes.Contains(bytes.ToLower(raw), []byte("trailer:")) {
				t.Fatalf("ours would use the connection again after status %d, net/http refuses the answer", a.status)
			}
			return
		case err != nil:
			if !stricter(raw) && !errors.Is(err, errDispositions) {
				t.Fatalf("net/http reads %d, ours fails: %v", theirs.StatusCode, err)
			}
			return
		case a.status != theirs.StatusCode:
			t.Fatalf("net/http reads status %d, ours %d", theirs.StatusCode, a.status)
		}
		if !a.reusable {
			return
		}
		if _, err := io.Copy(io.Discard, theirs.Body); err != nil || theirs.Close || rest.Buffered() != len(src.b) {
			t.Fatalf("ours would use the connection again with %d bytes left; net/http: %v, close %v, %d bytes left",
				len(src.b), err, theirs.Close, rest.Buffered())
		}
	})
}

// readReference reads the final answer as net/http's transport does: interim ones are skipped.
func readReference(raw []byte) (*http.Response, *bufio.Reader) {
	r := bufio.NewReaderSize(bytes.NewReader(raw), max(16, len(raw)))
	for {
		answer, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
		if err != nil {
			return nil, r
		}
		if answer.StatusCode/100 != 1 || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, r
		}
	}
}

// stricter names every reason for which ours refuses what net/http accepts: a version that is not HTTP/1.x, a status
// with a sign, and more than 64 KiB before the body.
func stricter(raw []byte) bool {
	if len(raw) > maxHead {
		return true
	}
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\n')
		if i < 0 {
			return false
		}
		line := bytes.TrimSuffix(raw[:i], []byte{'\r'})
		version, status, _ := bytes.Cut(line, []byte{' '})
		status = bytes.TrimLeft(status, " ")
		if !bytes.HasPrefix(version, []byte(protocol)) || len(status) == 0 || !digit(status[0]) {
			return true
		}
		// Only an interim answer lets a second status line decide.
		end, _ := headEnd(raw, 0)
		if status[0] != '1' || end == 0 {
			return false
		}
		raw = raw[end:]
	}
	return false
}

func wantKnownError(t *testing.T, err error) {
	var malformed malformedError
	if err != nil && err != io.EOF && !errors.As(err, &malformed) {
		t.Fatalf("unexpected error %v", err)
	}
}

func wantBounded(t *testing.T, o *message.Outcome) {
	texts := []string{o.Detail}
	limits := []int{maxReason}
	if o.Problem != nil {
		texts = append(texts, o.Problem.Type, o.Problem.Title, o.Problem.Detail)
		limits = append(limits, maxProblem, maxProblem, maxProblem)
	}
	for i, s := range texts {
		if len(s) > limits[i] || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			t.Fatalf("text %q", s)
		}
	}
	if o.Status < 0 || o.Status > 999 || o.RetryAfter < -1 || o.RetryAfter > time.Minute {
		t.Fatalf("status %d, retry after %v", o.Status, o.RetryAfter)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"0", "120", "1e99", "-1", "Wed, 01 Jul 2026 12:00:00 GMT", "Wednesday, 01-Jul-26 12:00:00 GMT", "Wed Jul  1 12:00:00 2026", "99999999999999999999"} {
		f.Add(s)
	}
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		var r retryAfter
		r.set([]byte(s))
		n, err := strconv.ParseUint(s, 10, 63)
		date, dateErr := http.ParseTime(s)
		digits := s != "" && strings.Trim(s, "0123456789") == ""
		if want := digits || dateErr == nil && len(s) <= 40; r.present != want {
			t.Fatalf("%q: present %v, want %v", s, r.present, want)
		}
		if !r.present {
			return
		}
		got := r.wait(now, time.Hour)
		want := time.Hour
		switch {
		case digits && err == nil:
			want = time.Duration(min(n, 3600)) * time.Second
		case !digits:
			want = max(0, min(date.Sub(now), time.Hour))
		}
		if got != want {
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
			Passthrough: []string{}, Version: value,
		}
		if flags&2 != 0 {
			o.Passthrough = []string{"*"}
		}
		target := newTarget(t, o.URL, func(p *Options) { *p = o; p.IdleTimeout, p.MaxIdle = 1, 1 })
		v := brokertest.Value(&tree)
		m := &message.Message{
			Body: body, ContentType: contentType, ContentEncoding: value, MessageID: id, CorrelationID: value, ReplyTo: key,
			Type: value, AppID: name, UserID: key, Expiration: value, Priority: flags, Queue: name, Exchange: value,
			RoutingKey: key, HasOriginal: flags&4 != 0, OriginalExchange: key, OriginalRoutingKey: value,
			Timestamp: time.Unix(int64(len(tree))*math.MaxInt32*int64(flags), 0), RetryCount: int(flags), MaxRetries: 3,
			Trace:   message.TraceContext{Traceparent: id, Tracestate: value, Baggage: key},
			Headers: amqp.Table{name: value, key: v, value: id, "t": []any{v, value}, "cloudEvents:" + name: v},
		}
		x := newAttempt(nil)
		defer x.release()
		left := x.request.encode(target.encoding, m)
		raw := append(slices.Clone(x.request.out), body...)
		if x.request.encode(target.encoding, m); !bytes.Equal(raw[:len(raw)-len(body)], x.request.out) {
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

// allowed says whether the contract knows a header, as net/http spells it.
func allowed(name string, o *Options) bool {
	switch {
	case strings.HasPrefix(name, "Amqp-"), slices.Contains(bareAllowed, name):
		return true
	case o.CloudEvents && strings.HasPrefix(name, "Ce-"):
		return true
	}
	return len(o.Passthrough) > 0 && !deniedBare([]byte(name))
}
