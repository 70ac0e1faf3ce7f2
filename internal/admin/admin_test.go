package admin

import (
	"context"
	"net/http"
	"testing"
	"time"
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
