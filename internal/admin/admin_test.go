package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
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
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	const free = "127.0.0.1:0"
	taken := listener.Addr().String()
	for want, addrs := range map[string]Addrs{
		"listen for admin: SIDECAR_ADMIN_ADDR=192.0.2.1:1: listen tcp":                         {"192.0.2.1:1", free},
		"listen for admin: SIDECAR_ADMIN_ADDR=" + taken + ": address already in use: stop":     {taken, free},
		"listen for control: SIDECAR_CONTROL_ADDR=" + taken + ": address already in use: stop": {free, taken},
		"is not a loopback address and no token ":                                              {free, "0.0.0.0:0"},
	} {
		o := optionsOf(newFakeState(), io.Discard)
		o.AdminAddr, o.ControlAddr = addrs.Admin, addrs.Control
		s := New(o)
		if _, err := s.Listen(); err == nil || !strings.Contains(err.Error(), want) ||
			errors.Is(err, syscall.EADDRINUSE) != strings.Contains(want, "in use") {
			t.Errorf("got %v, want %q", err, want)
		}
		if s.admin.Listener != nil { // what was bound before the failure
			wantFree(t, s.admin.Listener.Addr().String())
		}
	}
}

// wantFree fails when something still listens on an address.
func wantFree(t *testing.T, addr string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", addr))(t)
	_ = l.Close()
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
	wantFree(t, addrs.Admin)
	wantFree(t, addrs.Control)
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
	r.wantLogged(1, `"msg":"admin panic","panic":"boom"`)
}

type panicking struct{ *fakeState }

func (panicking) Status() Status { panic("boom") }
