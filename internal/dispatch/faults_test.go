package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// B2.
func TestAppDiesWithTheRequest(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, func(c *apptest.Conn) {
		if _, err := c.Next(); err == nil {
			_ = c.Reset()
		}
	})
	wantFailure(t, dispatch(t, newTarget(t, s.URL), sample()), message.FailureReset, "reset")
	wantSeen(t, s, 1, 1)
}

// B4: the answer's body is drained, so that the connection lives on; too much of it costs the connection.
func TestAnswerBodyIsDrained(t *testing.T) {
	t.Parallel()
	for size, conns := range map[int]int{0: 1, 5000: 1, http1.MaxBody: 1, http1.MaxBody + 1: 3} {
		s := apptest.Listen(t, apptest.Answer(apptest.Full(200, strings.Repeat("x", size))))
		target := newTarget(t, s.URL)
		wantStatuses(t, target, 3, 200)
		wantSeen(t, s, conns, 3)
	}
}

// B5.
func TestAppThatNeverFinishes(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		first, then string // then is repeated until the peer gives up
		status      int
		text        string // of the answer
	}{
		"says nothing":          {"", "", 0, ""},
		"headers byte by byte":  {"HTTP/1.1 200 OK\r\nX: ", "y", 0, ""},
		"interim for ever":      {"", "HTTP/1.1 102 Processing\r\n\r\n", 0, ""},
		"body byte by byte":     {"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", "y", 200, ""},
		"chunks for ever":       {"HTTP/1.1 503 No\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", 503, "(not"},
		"100 endless body":      {"HTTP/1.1 200 OK\r\n\r\n", "y", 200, ""},
		"body that never comes": {"HTTP/1.1 500 X\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 700\r\n\r\nout of stock \xc3", "", 500, "out of stock "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := apptest.Listen(t, func(c *apptest.Conn) {
				if _, err := c.Next(); err != nil {
					return
				}
				c.Send(row.first)
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for row.then != "" {
					<-tick.C
					if _, err := c.Write([]byte(row.then)); err != nil {
						return
					}
				}
				c.WaitClosed()
			})
			o := dispatch(t, newTarget(t, s.URL, timeout(patience), kept(1024)), sample())
			if row.status != 0 {
				wantStatus(t, o, row.status)
			} else {
				wantFailure(t, o, message.FailureTimeout, "timeout")
			}
			if text := o.Answer; text != row.text && !strings.HasPrefix(text, row.text+" text: image/png, at least ") {
				t.Errorf("kept %q", text)
			}
			wantSeen(t, s, 1, len(s.Requests()))
		})
	}
}

// Rows 105 and B11: an app may answer before it has read the body, and stop reading.
func TestAnswerBeforeTheBodyIsRead(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 64<<10 + 1, 8 << 20} {
		for name, end := range map[string]func(*apptest.Conn){
			"keeps the connection": (*apptest.Conn).Hold,
			"closes":               func(*apptest.Conn) {},
		} {
			t.Run(fmt.Sprintf("%d %s", size, name), func(t *testing.T) {
				s := apptest.Listen(t, func(c *apptest.Conn) {
					if _, err := c.Head(); err == nil {
						c.Send(apptest.Status(413))
						end(c)
					}
				})
				m := sized(size)
				target := newTarget(t, s.URL) // waiting for the body to be taken takes its time, and fails
				wantStatus(t, dispatch(t, target, m), 413)
				if size < 8<<20 {
					return // it may all have left, and then the connection is in order
				}
				wantStatus(t, dispatch(t, target, m), 413)
				wantSeen(t, s, 2, 0)
			})
		}
	}
}

// B7: redirects of every kind are answers; the second server never gets the message.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := apptest.Listen(t, apptest.Answer(apptest.Status(200)))
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := apptest.Listen(t, apptest.Answer(apptest.Status(status, "Location: "+other.URL+"/")))
		o := dispatch(t, newTarget(t, s.URL), sample())
		if wantStatus(t, o, status); o.Location != other.URL+"/" {
			t.Errorf("%d to %q", status, o.Location)
		}
	}
	if other.Accepted() != 0 {
		t.Error("a redirect was followed")
	}
}

// B12, B13, B14 and row 107: what the request never says and the client never keeps. TestMain sets HTTP_PROXY.
// Row 55: two messages with one id are two requests.
func TestRequestAsksForNothingSpecial(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(200, "Set-Cookie: a=b", "Content-Encoding: gzip")))
	target := newTarget(t, s.URL)
	wantStatuses(t, target, 2, 200)
	wantSeen(t, s, 1, 2)
	for _, r := range s.Requests() {
		if !bytes.Equal(r.Raw, s.Requests()[0].Raw) {
			t.Errorf("got\n%s\nafter\n%s", r.Raw, s.Requests()[0].Raw)
		}
		for _, n := range []string{"Expect", "Accept-Encoding", "Cookie", "Connection", "Transfer-Encoding", "Te", "Upgrade"} {
			if v, ok := r.Header[n]; ok {
				t.Errorf("%s: %q", n, v)
			}
		}
	}
}

// Row 114.
func TestAnswerAfterTheTimeoutReachesNoOtherMessage(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := apptest.Listen(t, func(c *apptest.Conn) {
		if _, err := c.Next(); err != nil {
			return
		}
		if c.Number == 1 {
			<-release
			c.Send(apptest.Status(200))
		} else {
			c.Send(apptest.Status(500))
		}
		c.WaitClosed()
	})
	target := newTarget(t, s.URL, timeout(patience))
	wantFailure(t, dispatch(t, target, sample()), message.FailureTimeout, "timeout")
	close(release)
	wantStatus(t, dispatch(t, target, sample()), 500)
}

func TestContextInterruptsAtOnce(t *testing.T) {
	t.Parallel()
	stop := errors.New("stopping")
	for name, row := range map[string]struct {
		size   int
		script func(*apptest.Conn, func())
	}{
		"within the dial":            {0, func(c *apptest.Conn, cancel func()) { cancel(); c.WaitClosed() }},
		"while the app thinks":       {10, func(c *apptest.Conn, cancel func()) { _, _ = c.Next(); cancel(); c.WaitClosed() }},
		"within the headers":         {10, func(c *apptest.Conn, cancel func()) { _, _ = c.Next(); c.Send("HTTP/1.1 2"); cancel(); c.WaitClosed() }},
		"while a large body is sent": {8 << 20, func(c *apptest.Conn, cancel func()) { _, _ = c.Head(); cancel(); c.Hold() }},
		"on a connection used before": {10, func(c *apptest.Conn, cancel func()) {
			_, _ = c.Next()
			c.Send(apptest.Status(204))
			_, _ = c.Next()
			cancel()
			c.WaitClosed()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			s := apptest.Listen(t, func(c *apptest.Conn) { row.script(c, func() { cancel(stop) }) })
			url := s.URL
			if row.size == 0 {
				url = strings.Replace(url, "http:", "https:", 1)
			}
			target, m := newTarget(t, url), sized(row.size)
			o := target.Dispatch(ctx, m)
			if o.Failure == message.FailureNone {
				o = target.Dispatch(ctx, m)
			}
			wantFailure(t, o, message.FailureInterrupted, "stopping")
			if !errors.Is(o.Err, stop) {
				t.Errorf("%v does not wrap the cause", o.Err)
			}
			o = target.Dispatch(ctx, m)
			wantFailure(t, o, message.FailureInterrupted, "stopping")
		})
	}
}

// An answer that is complete when the context ends stays an answer.
func TestContextThatEndsAfterTheHeadersChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	s := apptest.Listen(t, func(c *apptest.Conn) {
		_, _ = c.Next()
		c.Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
		time.AfterFunc(patience, cancel) // any time after the headers will do
		c.WaitClosed()
	})
	wantStatus(t, newTarget(t, s.URL).Dispatch(ctx, sample()), 200)
}
