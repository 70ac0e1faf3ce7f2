package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/telemetry"
)

// askDrained runs the handler in a bubble: the waits are long, and virtual time needs no sockets.
func askDrained(ctx context.Context, s *Server) *httptest.ResponseRecorder {
	return askDrainedAs(ctx, s, "curl/8.5.0")
}

func askDrainedAs(ctx context.Context, s *Server, agent string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/drained", nil)
	r.Header.Set("User-Agent", agent)
	s.drained(w, r)
	return w
}

func waiting(f *fakeState, grace time.Duration) *Server {
	return &Server{o: Options{State: f, Grace: grace}, stopping: make(chan struct{}), operations: newOperations(nil)}
}

func TestDrainedWithoutADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := askDrained(t.Context(), waiting(newFakeState(), time.Minute))
		if w.Code != http.StatusOK || w.Body.String() != `{"state":"not draining"}`+"\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if d := time.Since(start); d != drainAppears {
			t.Errorf("waited %v", d)
		}
	})
}

func TestDrainedWaitsLongerForAHook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, start := newFakeState(), time.Now()
		s := waiting(f, time.Minute)
		if w := askDrainedAs(t.Context(), s, "kube-lifecycle/1.36"); w.Code != http.StatusOK || w.Body.String() != `{"state":"not draining"}`+"\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if d := time.Since(start); d != hookAppears {
			t.Errorf("waited %v", d)
		}
		time.AfterFunc(9*time.Second, func() { close(f.draining) })
		time.AfterFunc(20*time.Second, func() { close(f.drained) })
		if w := askDrainedAs(t.Context(), s, "kube-lifecycle/1.36"); w.Body.String() != `{"state":"drained"}`+"\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func TestDrainedWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, start := newFakeState(), time.Now()
		time.AfterFunc(2*time.Second, func() { close(f.draining) })
		time.AfterFunc(20*time.Second, func() { close(f.drained) })
		w := askDrained(t.Context(), waiting(f, 25*time.Second))
		if w.Code != http.StatusOK || w.Body.String() != `{"state":"drained"}`+"\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if d := time.Since(start); d != 20*time.Second {
			t.Errorf("waited %v", d)
		}
	})
}

func TestDrainedIsBoundedByTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, start := newFakeState(), time.Now()
		close(f.draining)
		w := askDrained(t.Context(), waiting(f, 25*time.Second))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if d := time.Since(start); d != 25*time.Second+drainMargin {
			t.Errorf("waited %v", d)
		}
	})
}

func TestDrainedEndsWithItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, start := newFakeState(), time.Now()
		close(f.draining)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if w := askDrained(ctx, waiting(f, time.Minute)); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d", w.Code)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("waited %v", d)
		}
	})
}

// What has drained says so even while the listeners stop: a hook of the app may be waiting for exactly this answer.
func TestDrainedWhileStopping(t *testing.T) {
	t.Parallel()
	f := newFakeState()
	s := waiting(f, time.Minute)
	close(f.draining)
	s.stop()
	if w := askDrained(t.Context(), s); w.Code != http.StatusServiceUnavailable {
		t.Errorf("not drained: %d", w.Code)
	}
	close(f.drained)
	if w := askDrained(t.Context(), s); w.Code != http.StatusOK {
		t.Errorf("drained: %d", w.Code)
	}
}

func TestShutdownReleasesWaiters(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	close(r.state.draining)
	got := make(chan reply, 1)
	go func() { got <- r.do(http.MethodGet, r.admin, "/drained", nil) }()
	for len(r.waits) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	r.wantProblem("waiter", <-got, http.StatusServiceUnavailable)
}

func TestWaitersAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for range cap(r.waits) {
		r.waits <- struct{}{}
	}
	r.wantProblem("full", r.do(http.MethodGet, r.admin, "/drained", nil), http.StatusServiceUnavailable)
}

// The listener's own deadlines are far shorter than a grace: waiting must not run into them.
func TestDrainedOutlivesTheListenersDeadlines(t *testing.T) {
	t.Parallel()
	f := newFakeState()
	close(f.draining)
	s := New(Options{
		AdminAddr: "127.0.0.1:0", ControlAddr: "127.0.0.1:0", State: f, Grace: time.Minute,
		Logger: telemetry.NewLogger(new(logBuffer), "info", "json"),
	})
	s.admin.ReadTimeout, s.admin.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	addrs, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context()) }()
	time.AfterFunc(300*time.Millisecond, func() { close(f.drained) })
	resp, err := client.Get("http://" + addrs.Admin + "/drained")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := errors.Join(s.Shutdown(t.Context()), <-served); err != nil {
		t.Error(err)
	}
}
