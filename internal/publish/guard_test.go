package publish

import (
	"net/http"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
)

const token = "correct-horse-battery"

func TestGuard(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Token = func() string { return token } })
	bearer := []string{"Authorization", "Bearer " + token}
	with := func(headers ...string) []string { return append(headers, bearer...) }
	r.wantPublished("with the token", r.post("/publish/default/k", "x", bearer...))
	for _, path := range []string{"/publish/default/k", "/publish:batch", "/nowhere", "/readyz/", "/%72eadyz"} {
		for _, method := range []string{"GET", "POST", "PUT", "OPTIONS"} {
			got := r.do(method, path, nil)
			r.want(method+path, got, http.StatusUnauthorized, unauthorized, "token")
			if got.Header.Get("WWW-Authenticate") != "Bearer" || !got.Close {
				t.Errorf("%v", got.Header)
			}
		}
		r.want(path, r.post(path, "", "Authorization", "Bearer wrong"), http.StatusUnauthorized, unauthorized, "token")
		r.want(path, r.post(path, "", with("Origin", "http://evil.example")...), http.StatusForbidden, forbidden, "other sites")
		r.want(path, r.post(path, "", with("Sec-Fetch-Site", "cross-site")...), http.StatusForbidden, forbidden, "other sites")
		r.want(path, r.post(path, "", with("X-Http-Method-Override", "POST")...), http.StatusBadRequest, invalid, "override")
		r.want(path, r.post("http://evil.example"+path, "", bearer...), http.StatusMisdirectedRequest, misdirected, "another server")
	}
	if got := r.do(http.MethodGet, "/readyz", nil); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "true") {
		t.Errorf("readiness: %d %s", got.StatusCode, got.body)
	}
	for path, want := range map[string]int{"/publish/default/k": 405, "/readyz": 405, "/": 404, "/publish": 404, "/x/../publish/default/k": 404, "/publish:batch/": 404} {
		method := map[bool]string{true: http.MethodPost, false: http.MethodDelete}[path == "/readyz"]
		got := r.do(method, path, nil, bearer...)
		r.want(path, got, want, map[int]code{404: notFound, 405: badMethod}[want], "")
		if want == 405 && got.Header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", path)
		}
	}
	log := r.log.String()
	if strings.Contains(log, token) || !strings.Contains(log, `"msg":"publish refused","peer":"127.0.0.1:`) || !strings.Contains(log, `"status":401,"reason":"`) {
		t.Errorf("%s", log)
	}
	if n := r.metric("sidecar_publish_requests_total", "exchange", "", "result", "unauthorized"); n == 0 {
		t.Error("not counted")
	}
}

// The file behind the token may be emptied while we run: that closes the door, it does not open it.
func TestAnEmptyTokenLetsNoClientIn(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Token = func() string { return "" } })
	r.want("empty", r.post("/publish/default/k", "", "Authorization", "Bearer "), http.StatusUnauthorized, unauthorized, "token")
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{"0.0.0.0:0": "no token is set", "127.0.0.1:99999": "listen for publishing"} {
		s := New(Options{Addr: addr, Logger: telemetry.NewLogger(new(brokertest.Log), "info", "json")})
		if _, err := s.Listen(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", addr, err)
		}
		s.Close()
	}
}

// A listener that breaks is an error of Serve.
func TestServeFails(t *testing.T) {
	t.Parallel()
	s := New(Options{Addr: "127.0.0.1:0", Logger: telemetry.NewLogger(new(brokertest.Log), "info", "json")})
	must.Get(s.Listen())(t)
	_ = s.listener.Listener.Close()
	if err := s.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "serve publishing") {
		t.Errorf("%v", err)
	}
}

// A bug in one answer is no more than a failed answer.
func TestPanic(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	r.server.o.Publisher = nil
	r.want("a bug", r.post("/publish/default/k", ""), http.StatusInternalServerError, internal, "")
	if !strings.Contains(r.log.String(), `"msg":"publish panic"`) {
		t.Error("nothing was logged")
	}
}
