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

// drip writes one byte every 50 ms.
func drip(s string) func(net.Conn) bool {
	return func(c net.Conn) bool {
		for _, b := range []byte(s) {
			if _, err := c.Write([]byte{b}); err != nil {
				return false
			}
			time.Sleep(50 * time.Millisecond)
		}
		return true
	}
}

// hostileAnswers is one of each kind; all of them are in package dispatch.
func hostileAnswers() []hostile {
	long := strings.Repeat("x", 1<<20)
	return []hostile{
		{"204-with-body", "ack", keeping("HTTP/1.1 204 No Content\r\n\r\nunsolicited")},
		{"two-lengths", "retry", ending("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")},
		{"length-and-chunked", "ack", ending("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")},
		{"http-0.9", "retry", ending("<html>hello</html>")},
		{"empty", "retry", ending("")},
		{"half-header", "retry", ending("HTTP/1.1 200 OK\r\nContent-Le")},
		{"http-1.0", "ack", ending("HTTP/1.0 200 OK\r\n\r\nbye")},
		{"status-line-1MiB", "retry", ending("HTTP/1.1 200 " + long + "\r\nContent-Length: 0\r\n\r\n")},
		{"header-2MiB", "retry", ending("HTTP/1.1 200 OK\r\nX: " + long + long + "\r\nContent-Length: 0\r\n\r\n")},
		{"header-32KiB", "ack", keeping("HTTP/1.1 200 OK\r\nX: " + long[:32<<10] + "\r\nContent-Length: 0\r\n\r\n")},
		{"endless-body", "ack", flood("HTTP/1.1 200 OK\r\n\r\n", long)},
		{"endless-chunks", "ack", flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "10000\r\n"+long[:0x10000]+"\r\n")},
		{"trailer-bomb", "ack", flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-Trailer: "+long[:1000]+"\r\n")},
		{"truncated-body", "ack", ending("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")},
		{"stuck-body", "ack", keeping("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")},
		{"101", "retry", ending("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")},
		{"100-then-close", "retry", ending("HTTP/1.1 100 Continue\r\n\r\n")},
		{"reset-at-once", "retry", func(c net.Conn) bool { reset(c); return false }},
		{"http-2", "retry", ending("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")},
		{"slow-head", "retry", drip("HTTP/1.1 200 OK\r\nX-Slow: " + strings.Repeat("z", 200))},
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

// TestNoSilentRepeat: a connection that dies after the request was read is an unknown outcome; the message returns
// through the broker, counted, never by a quiet second POST.
func TestNoSilentRepeat(t *testing.T) {
	t.Parallel()
	raw := newRawApp(t, func(c net.Conn, r *rawRequest) bool {
		if r.id == "victim" && r.nth == 1 {
			return false // on a connection that has served before: where net/http would send it again
		}
		return say(c, ok200)
	})
	sc := newScene(t).with("APP_URL", raw.url(), "CONCURRENCY", "1").seed()
	s := sc.run()
	sc.send("warm")
	raw.await("warm", 1)
	m := message("victim")
	m.Headers = map[string]any{"Idempotency-Key": "k", "X-Idempotency-Key": "k"}
	sc.sendMessage(m)
	list := raw.await("victim", 2)
	if list[1].value("Amqp-Retry-Count") != "1" || list[1].at.Sub(list[0].at) < 300*time.Millisecond {
		t.Errorf("second receipt after %v with Amqp-Retry-Count %s", list[1].at.Sub(list[0].at), list[1].value("Amqp-Retry-Count"))
	}
	sc.settledAll(s, 0)
	if n := len(raw.seen("victim")); n != 2 {
		t.Errorf("%d receipts, want 2", n)
	}
}

// TestHangingMessagesAtTheHead: SIDECAR_CONCURRENCY messages at once means that many hanging ones cost one timeout
// together, also right after a start.
func TestHangingMessagesAtTheHead(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("APP_TIMEOUT", "3s", "CONCURRENCY", "10", "MAX_RETRIES", "0").seed()
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	hang, good := numbered("hang", 20), numbered("good", 20)
	for _, id := range hang {
		sc.app.on(id, answer{gate: never})
	}
	sc.send(hang...)
	sc.send(good...)
	s := sc.run()
	sc.app.awaitAll(good...)
	sc.take(sc.dlq(), len(hang))
	sc.settledAll(s, 0)
}
