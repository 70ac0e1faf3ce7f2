package admin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/apptest"
)

const token = "correct-horse-battery"

func withToken(o *Options) { o.Token = func() string { return token } }

func authorized(value string) func(*http.Request) {
	return func(q *http.Request) { q.Header.Set("Authorization", value) }
}

func TestTokenGuardsEveryPath(t *testing.T) {
	t.Parallel()
	r := start(t, withToken)
	paths := []string{
		"/status", "/drain", "/pause", "/index.html", "/nowhere", "/livez", "/metrics", "/status/", "//status", "/./status", "/a/../status",
		"/%73tatus", "/%2e%2e/status", "/..%2fstatus", "/status;x", "/status%00", "/status?token=" + token, "/dlq/../status", "/status#x",
	}
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, path := range paths {
			got := r.do(method, r.control, path, nil)
			r.wantProblem(method+" "+path, got, http.StatusUnauthorized)
			if got.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: no challenge", path)
			}
		}
	}
	for _, line := range []string{"GET http://127.0.0.1/status HTTP/1.1", "OPTIONS * HTTP/1.1", "GET /status HTTP/1.0"} {
		got := r.raw(r.control, line+"\r\nHost: 127.0.0.1\r\n\r\n")
		if got.StatusCode != http.StatusUnauthorized && got.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", line, got.StatusCode)
		}
	}
	r.wantCalled("")
}

func TestToken(t *testing.T) {
	t.Parallel()
	r := start(t, withToken)
	for _, good := range []string{"Bearer " + token, "bearer " + token} {
		r.want(good, r.do(http.MethodGet, r.control, "/status", authorized(good)), http.StatusOK)
	}
	for _, bad := range []string{
		"Bearer", "Bearer ", token, "Basic " + token, "Bearer  " + token, "Bearer " + token + "x", "Bearer " + token[:len(token)-1],
		"Bearer " + strings.ToUpper(token), "Bearer x", "Bearer " + token + "," + token, "Bearer " + strings.Repeat("x", 8000),
	} {
		got := r.do(http.MethodGet, r.control, "/status", authorized(bad))
		r.wantProblem(bad[:min(len(bad), 40)], got, http.StatusUnauthorized)
		if strings.Contains(got.body, token) {
			t.Error("the answer shows the token")
		}
	}
	twice := r.do(http.MethodGet, r.control, "/status", func(q *http.Request) {
		q.Header["Authorization"] = []string{"Bearer wrong", "Bearer " + token}
	})
	r.wantProblem("two headers", twice, http.StatusUnauthorized)
	r.want("1 MiB", r.do(http.MethodGet, r.control, "/status", authorized("Bearer "+strings.Repeat("x", 1<<20))), http.StatusRequestHeaderFieldsTooLarge)
	// The health surface has no token.
	r.want("/livez", r.do(http.MethodGet, r.admin, "/livez", nil), http.StatusOK)
	if strings.Contains(r.log.String(), token) {
		t.Error("the log shows the token")
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	_, port, _ := net.SplitHostPort(r.control)
	for _, good := range []string{"127.0.0.1", "127.0.0.1:" + port, "127.0.0.1:1", "127.9.9.9", "localhost", "LocalHost:80", "[::1]", "[::1]:9091", "[::ffff:127.0.0.1]"} {
		r.want(good, r.raw(r.control, "GET /status HTTP/1.1\r\nHost: "+good+"\r\n\r\n"), http.StatusOK)
	}
	for _, bad := range []string{
		"evil.example", "evil.example:" + port, "localhost.evil.example", "127.0.0.1.evil.example", "evil.localhost", "localhost.",
		"0.0.0.0", "192.0.2.1", "[::]", "[2001:db8::1]", "2130706433", "0x7f000001", "localhost:80x", "[localhost]x", "", ":" + port, "[]",
	} {
		got := r.raw(r.control, "GET /status HTTP/1.1\r\nHost: "+bad+"\r\n\r\n")
		if got.StatusCode != http.StatusMisdirectedRequest && got.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, got.StatusCode)
		}
	}
	// The absolute form of the target counts, not the Host header beside it; and HTTP/1.0 may have none.
	r.wantProblem("absolute", r.raw(r.control, "GET http://evil.example/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), http.StatusMisdirectedRequest)
	r.wantProblem("none", r.raw(r.control, "GET /status HTTP/1.0\r\n\r\n"), http.StatusMisdirectedRequest)
	r.want("two", r.raw(r.control, "GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n"), http.StatusBadRequest)
}

func addr(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 9091} }

// TestOtherSitesAreRefused on every path and with every method. The origins are compared in package httpguard.
func TestOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	ask := func(method, path, name string, values []string, want int) {
		got := r.do(method, r.control, path, func(q *http.Request) { q.Header[name] = values })
		r.want(fmt.Sprintf("%s %s %s %q", method, path, name, values), got, want)
	}
	own := "http://" + r.control
	for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
		for _, path := range []string{"/status", "/pause", "/nowhere"} {
			for _, origins := range [][]string{
				{"null"}, {"http://127.0.0.1:1"}, {"https://" + r.control}, {own + ".evil.example"}, {""}, {own, "http://evil.example"},
			} {
				ask(method, path, "Origin", origins, http.StatusForbidden)
			}
			for _, site := range []string{"cross-site", "same-site", ""} {
				ask(method, path, "Sec-Fetch-Site", []string{site}, http.StatusForbidden)
			}
		}
	}
	r.wantCalled("")
	for _, site := range []string{"same-origin", "none"} {
		ask("GET", "/status", "Sec-Fetch-Site", []string{site}, http.StatusOK)
	}
	ask("POST", "/pause", "Origin", []string{own}, http.StatusOK)
}

func TestSimpleRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	post := func(body string, types ...string) reply {
		return r.do(http.MethodPost, r.control, "/pause", func(q *http.Request) {
			setBody(q, body)
			if types != nil {
				q.Header["Content-Type"] = types
			}
		})
	}
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", "application/jsonp", "", ";", "application/json, text/plain"} {
		for _, body := range []string{"", "{}"} {
			r.wantProblem(ct, post(body, ct), http.StatusUnsupportedMediaType)
		}
	}
	r.wantProblem("two types", post("{}", "application/json", "text/plain"), http.StatusUnsupportedMediaType)
	r.wantProblem("no type", post("{}"), http.StatusUnsupportedMediaType)
	r.wantCalled("")
	r.want("no body, no type", post(""), http.StatusOK)
}

func TestMethodOverridesAreRefused(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "x-method-override"} {
		r.wantProblem(name, r.do(http.MethodGet, r.control, "/status", func(q *http.Request) { q.Header.Set(name, "POST") }), http.StatusBadRequest)
	}
}

// A second request hidden in the body of the first must never be read as one, and there is nothing to disagree about
// when the connection ends with the answer.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	hidden := "POST /drain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
	for name, head := range map[string]string{
		"CL.TE":        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
		"TE.CL":        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
		"TE alone":     "Transfer-Encoding: chunked\r\n",
		"TE odd":       "Transfer-Encoding: xchunked\r\n",
		"TE space":     "Transfer-Encoding : chunked\r\n",
		"TE twice":     "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
		"CL twice":     "Content-Length: 0\r\nContent-Length: 6\r\n",
		"CL signed":    "Content-Length: +6\r\n",
		"bare CR":      "X: y\rTransfer-Encoding: chunked\r\n",
		"CL not a num": "Content-Length: 0x6\r\n",
	} {
		for _, addr := range []string{r.admin, r.control} {
			path := map[string]string{r.admin: "POST /livez", r.control: "POST /pause"}[addr]
			conn := r.send(addr, path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+head+"\r\n0\r\n\r\n"+hidden)
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			answers := 0
			for in := bufio.NewReader(conn); ; answers++ {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					break
				}
				if resp.StatusCode < 400 {
					t.Errorf("%s: %d", name, resp.StatusCode)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if answers != 1 {
				t.Errorf("%s: %d answers", name, answers)
			}
			conn.Close()
		}
	}
	r.wantCalled("")
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, addr := range []string{r.admin, r.control} {
		got := r.do(http.MethodGet, addr, "/", func(q *http.Request) { q.Header.Set("X", strings.Repeat("x", 32<<10)) })
		r.want("32 KiB", got, http.StatusRequestHeaderFieldsTooLarge)
	}
}

func TestRefusalsAreWrittenDownButCannotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // while 50 requests take long, a clock would let more lines through
		log := new(apptest.Log)
		o := optionsOf(newFakeState(), log)
		withToken(&o)
		s := unbound(o)
		for range 50 {
			r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:9091/status", nil)
			r.RemoteAddr = "127.0.0.1:7"
			r.Header.Set("X-Forwarded-For", "203.0.113.9")
			s.control.Handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		if n := len(log.Lines(`"level":"warn","msg":"control refused","peer":"127.0.0.1:7"`, `"status":401,"reason":"`)); n == 0 || n > 25 {
			t.Errorf("%d lines for 50 refusals: %s", n, log)
		}
		if strings.Contains(log.String(), "203.0.113.9") {
			t.Errorf("log: %s", log)
		}
		s.close()
	})
}
