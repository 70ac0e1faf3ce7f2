package test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// hostile is one bad answer to the first receipt of a message; want is ack, retry, or empty when both are fair and only
// liveness counts.
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

func hostileAnswers() []hostile {
	long := strings.Repeat("x", 1<<20)
	return []hostile{
		{"204-with-body", "ack", keeping("HTTP/1.1 204 No Content\r\n\r\nunsolicited")},
		{"two-lengths", "retry", ending("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")},
		{"bad-length", "retry", ending("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n")},
		{"length-and-chunked", "ack", ending("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")},
		{"http-0.9", "retry", ending("<html>hello</html>")},
		{"junk", "retry", ending("\x00\x01\x02\xff\xfe junk\r\n\r\n")},
		{"empty", "retry", ending("")},
		{"half-status-line", "retry", ending("HTTP/1.1 20")},
		{"half-header", "retry", ending("HTTP/1.1 200 OK\r\nContent-Le")},
		{"http-1.0", "ack", ending("HTTP/1.0 200 OK\r\n\r\nbye")},
		{"http-1.0-length", "ack", ending("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nbye")},
		{"no-reason", "ack", keeping("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n")},
		{"status-line-1MiB", "retry", ending("HTTP/1.1 200 " + long + "\r\nContent-Length: 0\r\n\r\n")},
		{"header-2MiB", "retry", ending("HTTP/1.1 200 OK\r\nX: " + long + long + "\r\nContent-Length: 0\r\n\r\n")},
		{"header-80KiB", "retry", ending("HTTP/1.1 200 OK\r\nX: " + long[:80<<10] + "\r\nContent-Length: 0\r\n\r\n")},
		{"header-32KiB", "ack", keeping("HTTP/1.1 200 OK\r\nX: " + long[:32<<10] + "\r\nContent-Length: 0\r\n\r\n")},
		{"many-headers", "retry", ending("HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Some: header\r\n", 20000) + "\r\n")},
		{"endless-body", "ack", flood("HTTP/1.1 200 OK\r\n\r\n", long)},
		{"endless-chunks", "ack", flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "10000\r\n"+long[:0x10000]+"\r\n")},
		{"trailer-bomb", "ack", flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-Trailer: "+long[:1000]+"\r\n")},
		{"bad-chunk", "ack", ending("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nnope")},
		{"truncated-body", "ack", ending("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")},
		{"stuck-body", "ack", keeping("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")},
		{"reset-after-head", "ack", func(c net.Conn) bool {
			say(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
			time.Sleep(200 * time.Millisecond)
			reset(c)
			return false
		}},
		{"10000-times-100", "", ending(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 10000) + ok200)},
		{"103-then-200", "ack", keeping("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok200)},
		{"100-then-close", "retry", ending("HTTP/1.1 100 Continue\r\n\r\n")},
		{"101", "retry", ending("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")},
		{"199-then-close", "retry", ending("HTTP/1.1 199 X\r\nContent-Length: 0\r\n\r\n")},
		{"reset-at-once", "retry", func(c net.Conn) bool { reset(c); return false }},
		{"http-2", "retry", ending("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")},
		{"http-2-line", "", ending("HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n")},
		{"slow-head", "retry", drip("HTTP/1.1 200 OK\r\nX-Slow: " + strings.Repeat("z", 200))},
		{"silence", "retry", func(c net.Conn) bool { _, _ = io.Copy(io.Discard, c); return false }},
		{"folded", "", ending("HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 0\r\n\r\n")},
		{"no-colon", "", ending("HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 0\r\n\r\n")},
		{"lf-only", "", ending("HTTP/1.1 200 OK\nContent-Length: 0\n\n")},
		{"negative-length", "retry", ending("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")},
		{"huge-length", "", ending("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n")},
		{"four-digits", "retry", ending("HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n")},
		{"negative-status", "retry", ending("HTTP/1.1 -20 OK\r\nContent-Length: 0\r\n\r\n")},
		{"gzip-bomb-headers", "ack", ending("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope")},
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
	byName := map[string]hostile{}
	for _, h := range cases {
		byName[h.name] = h
	}
	raw := newRawApp(t, func(c net.Conn, r *rawRequest) bool {
		if r.nth > 1 {
			return say(c, ok200)
		}
		return byName[r.id].act(c)
	})
	sc := newScene(t).with("APP_URL", raw.url(), "APP_TIMEOUT", "2s").seed()
	s := sc.run()
	for _, h := range cases {
		sc.send(h.name)
	}
	for _, h := range cases {
		eventually(t, "settlement after "+h.name, func() bool { return len(s.log.outcomes(h.name)) > 0 })
		got := s.log.outcomes(h.name)[0]
		if h.want != "" && got != h.want {
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

// TestAnswerBeforeTheBodyWasRead: the app decides by the headers alone.
func TestAnswerBeforeTheBodyWasRead(t *testing.T) {
	t.Parallel()
	raw := newRawApp(t, func(c net.Conn, _ *rawRequest) bool { return say(c, ok200) })
	early := make(chan string, 10)
	raw.early = func(c net.Conn, r *rawRequest) bool {
		if r.id != "early" || r.value("Amqp-Retry-Count") != "0" {
			return false
		}
		early <- r.id
		say(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, c) // a server that closes with unread bytes would reset its own answer away
		return true
	}
	sc := newScene(t).with("APP_URL", raw.url()).seed()
	m := message("early")
	m.Body = make([]byte, 8<<20)
	sc.sendMessage(m)
	s := sc.run()
	eventually(t, "settlement", func() bool { return len(s.log.outcomes("early")) > 0 })
	if got := s.log.outcomes("early"); got[0] != "ack" {
		t.Errorf("%v, want ack", got)
	}
	sc.settledAll(s, 0)
}

// TestAnswerWhileTheBodyCannotBeSent: the app refuses by the headers, reads nothing more and keeps the connection open.
// The answer is there; waiting for the body to leave would turn a 413 into a timeout.
func TestAnswerWhileTheBodyCannotBeSent(t *testing.T) {
	t.Parallel()
	raw := newRawApp(t, func(c net.Conn, _ *rawRequest) bool { return say(c, ok200) })
	raw.early = func(c net.Conn, r *rawRequest) bool {
		if r.value("Amqp-Retry-Count") != "0" {
			return false
		}
		say(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(6 * time.Second)
		return true
	}
	sc := newScene(t).with("APP_URL", raw.url(), "APP_TIMEOUT", "3s").seed()
	m := message("big")
	m.Body = make([]byte, 12<<20)
	sc.sendMessage(m)
	s := sc.run()
	eventually(t, "settlement", func() bool { return len(s.log.settled("big")) > 0 })
	if e := s.log.settled("big")[0]; e["status"] != 413.0 || e.text("outcome") != "retry" {
		t.Errorf("settled with status %v, outcome %v, reason %v; the app had answered 413", e["status"], e["outcome"], e["reason"])
	}
	raw.await("big", 1)
	sc.settledAll(s, 0)
}

// TestDesynchronisedConnection: bytes that follow an answer are not the answer to the next message.
func TestDesynchronisedConnection(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]time.Duration{"at-once": 0, "late": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := newRawApp(t, func(c net.Conn, r *rawRequest) bool {
				if r.id == "victim" && r.nth == 1 {
					return sayStatus(c, "500")
				}
				say(c, ok200[:len(ok200)-2]+"X-Real: 1\r\n\r\n")
				if r.id == "liar" {
					time.Sleep(late)
					say(c, ok200)
				}
				return true
			})
			sc := newScene(t).with("APP_URL", raw.url(), "CONCURRENCY", "1", "PREFETCH", "1").seed()
			s := sc.run()
			sc.send("liar")
			raw.await("liar", 1)
			time.Sleep(2*late + 50*time.Millisecond) // the stray answer must have arrived before the next request leaves
			sc.send("victim")
			raw.await("victim", 2)
			if got := s.log.outcomes("victim"); got[0] != "retry" {
				t.Errorf("the victim's own answer was 500, it was settled as %v", got)
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestConnectionsThatCloseAfterEachAnswer: the keep-alive race must lose nothing and send nothing twice.
func TestConnectionsThatCloseAfterEachAnswer(t *testing.T) {
	t.Parallel()
	raw := newRawApp(t, func(c net.Conn, r *rawRequest) bool {
		say(c, ok200)
		if len(r.id)%2 == 0 {
			time.Sleep(time.Millisecond)
		}
		return false
	})
	sc := newScene(t).with("APP_URL", raw.url(), "CONCURRENCY", "4").seed()
	ids := numbered("m", 500)
	sc.send(ids...)
	s := sc.run()
	for _, id := range ids {
		raw.await(id, 1)
	}
	eventually(t, "an empty retry queue", func() bool { return sc.ready(sc.retryQueue()) == 0 && sc.ready(sc.queue()) == 0 })
	sc.settledAll(s, 0)
	counted := 0
	for _, id := range ids {
		list := raw.seen(id)
		if len(list) != 1 {
			t.Errorf("%s was received %d times", id, len(list))
		}
		if list[0].value("Amqp-Retry-Count") != "0" {
			counted++
		}
	}
	t.Logf("%d of %d messages were counted as failed once because a connection closed under them", counted, len(ids))
}

// TestNoSilentRepeat: a connection that dies after the request was read is an unknown outcome; the message comes back
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

// TestAnswerAfterTheTimeout is too late: the attempt has failed and the connection is not used again.
func TestAnswerAfterTheTimeout(t *testing.T) {
	t.Parallel()
	raw := newRawApp(t, func(c net.Conn, r *rawRequest) bool {
		if r.id == "late" && r.nth == 1 {
			time.Sleep(1500 * time.Millisecond)
		}
		return say(c, ok200)
	})
	sc := newScene(t).with("APP_URL", raw.url(), "APP_TIMEOUT", "500ms").seed()
	sc.send("late")
	s := sc.run()
	list := raw.await("late", 2)
	if list[1].value("Amqp-Retry-Count") != "1" || list[1].conn == list[0].conn {
		t.Errorf("second receipt: Amqp-Retry-Count %s on connection %d (first: %d)", list[1].value("Amqp-Retry-Count"), list[1].conn, list[0].conn)
	}
	if got := s.log.settled("late")[0]; got.text("outcome") != "retry" || got.text("reason") != "timeout" {
		t.Errorf("settled as %v", got)
	}
	sc.settledAll(s, 0)
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
