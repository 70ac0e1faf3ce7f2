package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/telemetry"
)

func TestEveryAnswerIsProtected(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, addr := range []string{r.admin, r.control} {
		for _, path := range []string{"/livez", "/status", "/nowhere"} {
			h := r.do(http.MethodGet, addr, path, nil).Header
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Access-Control-Allow-Origin": "", "Server": "",
			} {
				if got := h.Get(name); got != want {
					t.Errorf("%s: %s = %q, want %q", path, name, got, want)
				}
			}
		}
	}
}

func TestNothingElseIsServed(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, path := range []string{
		"/", "/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/favicon.ico", "/config", "/livez/", "//livez", "/livez;x", "/LIVEZ",
		"/%6civez", "/a/../livez", "/./livez", "/%2e%2e/livez", "/livez%00", "/livez%2f",
	} {
		r.wantProblem(path, r.do(http.MethodGet, r.admin, path, nil), http.StatusNotFound)
	}
	// Nothing of one listener is on the other.
	for _, path := range []string{"/status", "/drain", "/pause", "/resume"} {
		r.wantProblem(path, r.do(http.MethodGet, r.admin, path, nil), http.StatusNotFound)
		r.wantProblem(path, r.do(http.MethodPost, r.admin, path, nil), http.StatusNotFound)
	}
	for _, path := range []string{"/livez", "/readyz", "/startupz", "/metrics", "/drained", "/debug/pprof/"} {
		r.wantProblem(path, r.do(http.MethodGet, r.control, path, nil), http.StatusNotFound)
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for want, o := range map[string]Options{
		"listen for admin: SIDECAR_ADMIN_ADDR=192.0.2.1:1: listen tcp":                                         {AdminAddr: "192.0.2.1:1", ControlAddr: "127.0.0.1:0"},
		"listen for admin: SIDECAR_ADMIN_ADDR=" + taken.Addr().String() + ": address already in use: stop":     {AdminAddr: taken.Addr().String(), ControlAddr: "127.0.0.1:0"},
		"listen for control: SIDECAR_CONTROL_ADDR=" + taken.Addr().String() + ": address already in use: stop": {AdminAddr: "127.0.0.1:0", ControlAddr: taken.Addr().String()},
		"is not a loopback address and no token ":                                                              {AdminAddr: "127.0.0.1:0", ControlAddr: "0.0.0.0:0"},
	} {
		o.Logger = telemetry.NewLogger(new(apptest.Log), "info", "json")
		o.State, o.DeadLetters = newFakeState(), apiOf(nil, o.Logger)
		s := New(o)
		if _, err := s.Listen(); err == nil || !strings.Contains(err.Error(), want) ||
			errors.Is(err, syscall.EADDRINUSE) != strings.Contains(want, "in use") {
			t.Errorf("got %v, want %q", err, want)
		}
		// What was bound before the failure is free again.
		if s.admin.Listener != nil {
			l, err := net.Listen("tcp", s.admin.Listener.Addr().String())
			if err != nil {
				t.Errorf("still bound: %v", err)
				continue
			}
			_ = l.Close()
		}
	}
}

func TestServeReturnsWhatBroke(t *testing.T) {
	t.Parallel()
	s, _ := bound(t, newFakeState())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Serve(ctx); err != nil {
		t.Errorf("its context has ended: %v", err)
	}
	s, _ = bound(t, newFakeState())
	_ = s.control.Listener.Close()
	if err := s.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "serve control:") {
		t.Errorf("got %v", err)
	}
}

func TestShutdownBeforeServeFreesThePorts(t *testing.T) {
	t.Parallel()
	s, addrs := bound(t, newFakeState())
	s.Shutdown(t.Context())
	for _, addr := range []string{addrs.Admin, addrs.Control} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Errorf("still bound: %v", err)
			continue
		}
		_ = l.Close()
	}
}

// A connection that sent nothing must neither hold the stop up nor make it fail.
func TestShutdownCutsOffSilentConnections(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	conn := r.send(r.admin, "")
	r.do(http.MethodGet, r.admin, "/livez", nil) // the silent one has been accepted by now
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.Shutdown(ctx)
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}

func TestAPanicIsAnAnswerAndALogLine(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.State = panicking{newFakeState()} })
	r.wantProblem("panic", r.do(http.MethodGet, r.control, "/status", nil), http.StatusInternalServerError)
	if !strings.Contains(r.log.String(), `"msg":"admin panic","panic":"boom"`) {
		t.Errorf("log: %s", r.log)
	}
}

type panicking struct{ *fakeState }

func (panicking) Status() Status { panic("boom") }
