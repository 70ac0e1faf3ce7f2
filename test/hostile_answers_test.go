package test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostile is one bad answer to the first receipt of a message; want is ack or retry.
type hostile struct {
	name, want string
	act        func(net.Conn) (keep bool)
}

// ending writes and closes.
func ending(s string) func(net.Conn) bool {
	return func(c net.Conn) bool { say(c, s); return false }
}

func keeping(s string) func(net.Conn) bool {
	return func(c net.Conn) bool { return say(c, s) }
}

// flood writes the head, then the same chunk until the sidecar has had enough.
func flood(head, chunk string) func(net.Conn) bool {
	return func(c net.Conn) bool {
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		for ok := say(c, head); ok; ok = say(c, chunk) {
		}
		return false
	}
}

// hostileAnswers are some of those that reach beyond their own request; all kinds are in package dispatch.
func hostileAnswers() []hostile {
	long := strings.Repeat("x", 1<<20)
	return []hostile{
		{"204-with-body", "ack", keeping("HTTP/1.1 204 No Content\r\n\r\nunsolicited")},
		{"two-lengths", "retry", ending("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")},
		{"status-line-1MiB", "retry", ending("HTTP/1.1 200 " + long + "\r\nContent-Length: 0\r\n\r\n")},
		{"endless-body", "ack", flood("HTTP/1.1 200 OK\r\n\r\n", long)},
		{"truncated-body", "ack", ending("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")},
		{"silence", "retry", func(c net.Conn) bool { _, _ = io.Copy(io.Discard, c); return false }},
		{"late", "retry", func(c net.Conn) bool { time.Sleep(3 * time.Second); return say(c, ok200) }}, // after the timeout
		{"set-cookie", "ack", keeping("HTTP/1.1 200 OK\r\nSet-Cookie: canary-cookie=1; Path=/\r\nContent-Length: 0\r\n\r\n")},
		{"location-metadata", "retry", keeping("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n")},
		{"10MiB-error", "retry", ending("HTTP/1.1 500 X\r\nContent-Type: text/html\r\n\r\n" + strings.Repeat("\x1b[31m</script>canary-body\r\n", 400000))},
	}
}

// TestHostileAnswers: each bad answer has the verdict the contract gives it, and the message's next receipt is answered
// 200, so that all of them end acked.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	cases := hostileAnswers()
	raw := newRawApp(t, func(c net.Conn, r *rawRequest) bool {
		if r.nth > 1 {
			return say(c, ok200)
		}
		return cases[slices.IndexFunc(cases, func(h hostile) bool { return h.name == r.id })].act(c)
	})
	sc := newScene(t).with("APP_URL", raw.url(), "APP_TIMEOUT", "2s").seed()
	s := sc.run()
	for _, h := range cases {
		sc.send(h.name)
	}
	for _, h := range cases {
		eventually(t, "settlement after "+h.name, func() bool { return len(s.log.outcomes(h.name)) > 0 })
		got := s.log.outcomes(h.name)[0]
		if got != h.want {
			t.Errorf("%s: %s, want %s (%v)", h.name, got, h.want, s.log.settled(h.name)[0])
		}
		if got == "retry" {
			raw.await(h.name, 2)
		}
	}
	for _, h := range cases {
		for i, r := range raw.seen(h.name) {
			if r.value("Amqp-Retry-Count") != fmt.Sprint(i) {
				t.Errorf("%s: receipt %d has Amqp-Retry-Count %s", h.name, i+1, r.value("Amqp-Retry-Count"))
			}
			if r.values("Cookie") != nil {
				t.Errorf("%s: a cookie was kept: %q", h.name, r.values("Cookie"))
			}
		}
		if h.want == "ack" && len(raw.seen(h.name)) != 1 {
			t.Errorf("%s: %d receipts, want 1", h.name, len(raw.seen(h.name)))
		}
	}
	if s.log.mentions("canary-body") {
		t.Error("the log holds the app's answer")
	}
	sc.settledAll(s, 0)
}
