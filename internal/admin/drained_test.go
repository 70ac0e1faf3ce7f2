package admin

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/testkit/must"
)

// askDrained runs the handler in a bubble: the waits are long, and virtual time needs no sockets.
func askDrained(ctx context.Context, s *Server, agent string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/drained", nil)
	r.Header.Set("User-Agent", agent)
	s.drained(w, r)
	return w
}

func waiting(f *fakeState, grace time.Duration) *Server {
	o := optionsOf(f, io.Discard)
	o.Grace = grace
	return New(o)
}

func TestDrainedWaits(t *testing.T) {
	t.Parallel()
	const curl, hook, never = "curl/8.5.0", "kube-lifecycle/1.36", time.Hour
	for name, c := range map[string]struct {
		agent                  string
		grace                  time.Duration
		draining, drained, end time.Duration // of the drain, and of the client's patience, after the request
		status                 int
		state                  string
		waited                 time.Duration
	}{
		"no drain":                  {curl, time.Minute, never, never, never, http.StatusOK, "not draining", drainAppears},
		"no drain, longer for hook": {hook, time.Minute, never, never, never, http.StatusOK, "not draining", hookAppears},
		"a late drain and a hook":   {hook, time.Minute, 9 * time.Second, 20 * time.Second, never, http.StatusOK, "drained", 20 * time.Second},
		"a drain":                   {curl, 25 * time.Second, 2 * time.Second, 20 * time.Second, never, http.StatusOK, "drained", 20 * time.Second},
		"at most the grace":         {curl, 25 * time.Second, 0, never, never, http.StatusServiceUnavailable, "", 25*time.Second + drainMargin},
		"at most as the client":     {curl, time.Minute, 0, never, time.Second, http.StatusServiceUnavailable, "", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, start := newFakeState(), time.Now()
				defer time.AfterFunc(c.draining, func() { close(f.draining) }).Stop()
				defer time.AfterFunc(c.drained, func() { close(f.drained) }).Stop()
				synctest.Wait() // for a drain that begins at once
				ctx, cancel := context.WithTimeout(t.Context(), c.end)
				defer cancel()
				w := askDrained(ctx, waiting(f, c.grace), c.agent)
				if w.Code != c.status || c.state != "" && w.Body.String() != `{"state":"`+c.state+`"}`+"\n" {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				if d := time.Since(start); d != c.waited {
					t.Errorf("waited %v, want %v", d, c.waited)
				}
			})
		})
	}
}

// A stop releases who waits. What has drained says so even while the listeners stop: a hook of the app may be waiting for
// exactly this answer.
func TestDrainedWhileStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, start := newFakeState(), time.Now()
		s := waiting(f, time.Minute)
		close(f.draining)
		time.AfterFunc(time.Second, s.stop)
		for _, who := range []string{"waited", "came later"} {
			if w := askDrained(t.Context(), s, ""); w.Code != http.StatusServiceUnavailable || time.Since(start) != time.Second {
				t.Errorf("who %s: %d after %v", who, w.Code, time.Since(start))
			}
		}
		close(f.drained)
		if w := askDrained(t.Context(), s, ""); w.Code != http.StatusOK {
			t.Errorf("drained: %d", w.Code)
		}
	})
}

// TestWaitersAreBounded: a client that waits too often is answered with the state at once, and takes no place from another
// address.
func TestWaitersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeState()
		s := waiting(f, time.Minute)
		ask := func(address string) int {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/drained", nil)
			r.RemoteAddr = address + ":1"
			s.drained(w, r)
			return w.Code
		}
		codes := make(chan int, maxWaitsOfOne+1)
		for range maxWaitsOfOne {
			go func() { codes <- ask("127.0.0.1") }()
		}
		synctest.Wait()
		if code := ask("127.0.0.1"); code != http.StatusOK { // at once: nothing drains
			t.Errorf("one more: %d", code)
		}
		go func() { codes <- ask("127.0.0.2") }()
		synctest.Wait()
		if s.waits.all != maxWaitsOfOne+1 || s.waits.of["127.0.0.2"] != 1 {
			t.Errorf("%d wait, of %v", s.waits.all, s.waits.of)
		}
		close(f.draining)
		if code := ask("127.0.0.1"); code != http.StatusServiceUnavailable {
			t.Errorf("while it drains: %d", code)
		}
		close(f.drained)
		for range maxWaitsOfOne + 1 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("a request that waited: %d", code)
			}
		}
		synctest.Wait()
		if code := ask("127.0.0.1"); code != http.StatusOK || s.waits.all != 0 || len(s.waits.of) != 0 {
			t.Errorf("after the drain: %d, %v wait", code, s.waits.of)
		}
	})
}

func TestWaitersAreBoundedInAll(t *testing.T) {
	t.Parallel()
	w := waits{of: map[string]int{}}
	for i := range maxWaits {
		if !w.enter(strconv.Itoa(i)) {
			t.Fatalf("the %d. did not wait", i)
		}
	}
	if w.enter("one more") {
		t.Error("one more waits")
	}
	w.leave("0")
	if !w.enter("one more") {
		t.Error("a place that is free was not given")
	}
}

// The listener's own deadlines are far shorter than a grace: waiting must not run into them.
func TestDrainedOutlivesTheListenersDeadlines(t *testing.T) {
	t.Parallel()
	f := newFakeState()
	close(f.draining)
	s, addrs := bound(t, f)
	s.admin.ReadTimeout, s.admin.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context()) }()
	time.AfterFunc(300*time.Millisecond, func() { close(f.drained) })
	resp := must.Get(client.Get("http://" + addrs.Admin + "/drained"))(t)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	s.Shutdown(t.Context())
	must.Do(t, <-served)
}
