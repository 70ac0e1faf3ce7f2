package admin

import (
	"net/http"
	"strings"
	"testing"
)

const readToken = "only-look-do-not-touch"

func withTokens(o *Options) {
	o.Token, o.ReadToken = func() string { return token }, func() string { return readToken }
}

// TestScopes: with the read token every GET goes on, and nothing that changes anything, whatever its path.
func TestScopes(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) {
		withTokens(o)
		o.DeadLetters = away(t, o.Logger)
		o.Topologies = []Topology{topologyOf("", "")}
	})
	ask := func(method, path, bearer string) reply {
		return r.do(method, r.control, strings.Replace(path, "{id}", "0123456789abcdef", 1), func(q *http.Request) {
			if bearer != "" {
				q.Header.Set("Authorization", "Bearer "+bearer)
			}
		})
	}
	for path, route := range r.controlRoutes() {
		method := route.Method
		r.wantProblem(method+" "+path+" without", ask(method, path, ""), http.StatusUnauthorized)
		r.wantProblem(method+" "+path+" with a wrong one", ask(method, path, readToken+"x"), http.StatusUnauthorized)
		if method == http.MethodPost {
			r.wantProblem("POST "+path, ask(method, path, readToken), http.StatusForbidden, "may only read")
			continue
		}
		if path == "/events" { // does not end
			method = http.MethodHead
		}
		for _, bearer := range []string{readToken, token} {
			if path == "/dlq/export" && bearer == readToken { // bodies
				r.wantProblem(path, ask(method, path, bearer), http.StatusForbidden)
				continue
			}
			got := ask(method, path, bearer)
			if got.StatusCode == http.StatusUnauthorized || got.StatusCode == http.StatusForbidden || path == "/events" && got.StatusCode != http.StatusOK {
				t.Errorf("%s %s: %d", method, path, got.StatusCode)
			}
		}
	}
	for _, path := range []string{"/nowhere", "/pause/", "//pause", "/%70ause", "/dlq/messages/0123456789abcdef", "/"} {
		r.wantProblem("POST "+path, ask(http.MethodPost, path, readToken), http.StatusForbidden)
	}
	for _, path := range []string{"/dlq/messages/0123456789abcdef?body=true", "/admin/dlq/queues/wms.dlq.wms-a/messages?body=true"} {
		r.wantProblem(path, ask(http.MethodGet, path, readToken), http.StatusForbidden)
		r.wantProblem(path, ask(http.MethodGet, path, token), http.StatusServiceUnavailable) // the broker is away
	}
	r.wantCalled("")
	if log := r.log.String(); strings.Contains(log, token) || strings.Contains(log, readToken) {
		t.Error("the log shows a token")
	}
	if got := ask(http.MethodPost, "/pause", token); got.StatusCode != http.StatusOK {
		t.Errorf("POST /pause: %d", got.StatusCode)
	}
	r.wantLogged(1, `"action":"pause"`, `"scope":"write"`)
	r.wantLogged(3, `"action":"show bodies"`, `"scope":"write","status":503`)
}

// TestTokensThatRotate: a token that has become empty lets no client in, and two that have become the same one only read.
func TestTokensThatRotate(t *testing.T) {
	t.Parallel()
	write, read := token, readToken
	r := start(t, func(o *Options) {
		o.Token, o.ReadToken = func() string { return write }, func() string { return read }
	})
	code := func(method, bearer string) int {
		path := map[string]string{http.MethodGet: "/status", http.MethodPost: "/pause"}[method]
		return r.do(method, r.control, path, authorized("Bearer "+bearer)).StatusCode
	}
	read = ""
	if get, set := code(http.MethodGet, ""), code(http.MethodPost, token); get != http.StatusUnauthorized || set != http.StatusOK {
		t.Errorf("no read token: %d, %d", get, set)
	}
	read = token
	if get, set := code(http.MethodGet, token), code(http.MethodPost, token); get != http.StatusOK || set != http.StatusForbidden {
		t.Errorf("both the same: %d, %d", get, set)
	}
	read = "another-read-token"
	if get := code(http.MethodGet, readToken); get != http.StatusUnauthorized {
		t.Errorf("the read token of before: %d", get)
	}
	write, read = "", readToken
	if get, set := code(http.MethodGet, readToken), code(http.MethodPost, token); get != http.StatusOK || set != http.StatusUnauthorized {
		t.Errorf("no write token: %d, %d", get, set)
	}
	read = ""
	for _, v := range []string{"", "Bearer", "Bearer "} {
		r.wantProblem(v, r.do(http.MethodGet, r.control, "/status", authorized(v)), http.StatusUnauthorized)
	}
}

// TestConsoleFiles: they need no token, and everything else that guard checks still counts.
func TestConsoleFiles(t *testing.T) {
	t.Parallel()
	r := start(t, withTokens)
	for path, file := range r.files {
		body := content(t, file)
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got := r.do(method, r.control, path, nil)
			want := map[string]string{http.MethodGet: body}[method]
			if got.StatusCode != http.StatusOK || got.body != want || got.Header.Get("Content-Type") == "" || got.ContentLength != int64(len(body)) {
				t.Errorf("%s %s: %d %v %q", method, path, got.StatusCode, got.Header, got.body)
			}
			for name, want := range map[string]string{
				"Content-Security-Policy": consolePolicy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
			} {
				if got.Header.Get(name) != want {
					t.Errorf("%s: %s = %q", path, name, got.Header.Get(name))
				}
			}
		}
		for name, value := range map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"} {
			r.wantProblem(name, r.do(http.MethodGet, r.control, path, func(q *http.Request) { q.Header.Set(name, value) }), http.StatusForbidden)
		}
		r.wantProblem("host", r.do(http.MethodGet, r.control, path, func(q *http.Request) { q.Host = "evil.example" }), http.StatusMisdirectedRequest)
		r.wantProblem("POST", r.do(http.MethodPost, r.control, path, nil), http.StatusUnauthorized)
		r.wantProblem("admin", r.do(http.MethodGet, r.admin, path, nil), http.StatusNotFound)
	}
	for _, path := range []string{"/console.js/", "//console.js", "/%63onsole.js", "/./console.js", "/x/../console.js", "/console.js;x", "/index.html", "/console", "/console/", "//"} {
		r.wantProblem(path, r.do(http.MethodGet, r.control, path, nil), http.StatusUnauthorized)
	}
}
