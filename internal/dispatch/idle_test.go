package dispatch

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

// TestAppThatHangsUpAfterOneMillisecond is B3 at its worst: 800 messages, each sent about when the app hangs up.
//
// What can be promised is that no message arrives twice and that none fails which the app has taken. What cannot is
// that none fails at all: once the app has made up its mind to close, its kernel still takes bytes until the close is
// done, and the app cannot distinguish those bytes from bytes that were read. Such a message fails as a reset. The test checks
// that every failure is one of these: the app took fewer requests by exactly that many.
func TestAppThatHangsUpAfterOneMillisecond(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]func(testing.TB, func(*apptest.Conn)) *apptest.Server{
		"tcp": apptest.Listen, "unix": apptest.ListenUnix,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := listen(t, hangUpAfter(time.Millisecond))
			lost := postAtRandom(t, s, newTarget(t, s.URL))
			t.Logf("%d connections, %d messages lost to a closing app", s.Accepted(), lost)
		})
	}
}

// An idle timeout below the app's, which is the default's relation to common app servers, leaves nothing to lose.
func TestIdleTimeoutBelowTheApps(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, hangUpAfter(20*time.Second)) // longer than any stall of a busy machine
	target := newTarget(t, s.URL, func(o *Options) { o.IdleTimeout = time.Millisecond })
	if lost := postAtRandom(t, s, target); lost != 0 {
		t.Errorf("%d messages lost", lost)
	}
	if n := s.Accepted(); n <= 10 {
		t.Errorf("%d connections of 10 workers: idle ones were used again", n)
	}
}

func hangUpAfter(d time.Duration) func(*apptest.Conn) {
	return func(c *apptest.Conn) {
		for {
			c.SetReadDeadline(time.Now().Add(d))
			if _, err := c.Next(); err != nil {
				return
			}
			c.Send(apptest.Status(204))
		}
	}
}

// postAtRandom posts 800 messages at random moments, checks that the app's books agree with the outcomes, and
// returns the number of failures.
func postAtRandom(t *testing.T, s *apptest.Server, target *Target) int64 {
	const workers, posts = 10, 800
	var answered, lost, next atomic.Int64
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for n := next.Add(1); n <= posts; n = next.Add(1) {
				m := sample()
				m.MessageID = strconv.FormatInt(n, 10)
				switch o := target.Dispatch(t.Context(), m); {
				case o.Status == 204:
					answered.Add(1)
				case o.Failure == message.FailureReset, o.Failure == message.FailureRefused: // the latter not even sent
					lost.Add(1)
				default:
					t.Errorf("message %d: %+v", n, o)
				}
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			}
		})
	}
	done.Wait()
	seen := map[string]int{}
	for _, r := range s.Requests() {
		seen[r.Header.Get("Amqp-Message-Id")]++
	}
	for id, n := range seen {
		if n > 1 {
			t.Errorf("message %s came %d times", id, n)
		}
	}
	if int64(len(seen)) != answered.Load() || answered.Load()+lost.Load() != posts {
		t.Errorf("%d seen, %d answered, %d lost of %d", len(seen), answered.Load(), lost.Load(), posts)
	}
	return lost.Load()
}

// B17: the name stands for two addresses and the app listens on one of them.
func TestLocalhostFindsAnAppOnIPv4Only(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204)))
	url := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	if url == s.URL {
		t.Fatalf("the app listens on %s", s.URL)
	}
	for range 5 {
		wantStatus(t, dispatch(t, newTarget(t, url), sample()), 204)
	}
}
