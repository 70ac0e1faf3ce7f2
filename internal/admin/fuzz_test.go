package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/httpguard"
)

// FuzzControl sends any request to the control listener's handlers. What changed something must have been a POST to
// exactly that path, from this machine's own pages or none, with the token and without a field that means something;
// every refusal must be a problem document; and neither answer nor log may hold a token. With the read token nothing
// changes. What is said here about a request is said in other terms than in guard: over net/url and encoding/json.
func FuzzControl(f *testing.F) {
	f.Add("POST", "/pause", "127.0.0.1:9091", "", "", "", "Bearer "+token, []byte{})
	f.Fuzz(func(t *testing.T, method, target, host, origin, site, contentType, auth string, body []byte) {
		r := parse(method, target, host, origin, site, contentType, auth, body)
		if r == nil {
			return
		}
		state, log := newFakeState(), new(apptest.Log)
		state.onDrain = func() { close(state.draining) }
		o := optionsOf(state, log)
		withTokens(&o)
		o.DeadLetters = away(t, o.Logger)
		s := unbound(o)
		s.files = nil // which need no token
		s.stop()      // so that streams end and no operation begins
		w := httptest.NewRecorder()
		s.control.Handler.ServeHTTP(w, r)

		once := fromHere(r) && len(r.Header["Authorization"]) == 1
		trusted := once && (bears(r, token) || r.Method != http.MethodPost && bears(r, readToken))
		if called := state.called(); called != "" && (!trusted || !bears(r, token) || r.Method != http.MethodPost || r.URL.EscapedPath() != "/"+called || !emptyJSON(body)) {
			t.Fatalf("%s %s called %s: host %q, %v, body %q", r.Method, r.RequestURI, called, r.Host, r.Header, body)
		}
		if (w.Code < 400 || w.Code == http.StatusNotFound || w.Code == http.StatusServiceUnavailable) && !trusted {
			t.Fatalf("%s %s answered: host %q, %v", r.Method, r.RequestURI, r.Host, r.Header)
		}
		var p httpguard.Problem
		if w.Code >= 400 && (json.Unmarshal(w.Body.Bytes(), &p) != nil || p.Status != w.Code || w.Header().Get("Content-Type") != "application/problem+json") {
			t.Fatalf("%d is no problem document: %s", w.Code, w.Body)
		}
		if strings.Contains(w.Body.String()+log.String(), token) || strings.Contains(w.Body.String()+log.String(), readToken) || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Fatalf("the answer or the log shows too much: %v %s %s", w.Header(), w.Body, log)
		}
	})
}

// parse reads the request as the server would; nil when it would refuse it before any handler. A field may hold what
// looks like the next line.
func parse(method, target, host, origin, site, contentType, auth string, body []byte) *http.Request {
	text := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n"
	for name, v := range map[string]string{"Origin": origin, "Sec-Fetch-Site": site, "Content-Type": contentType, "Authorization": auth} {
		if v != "" {
			text += name + ": " + v + "\r\n"
		}
	}
	text += fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(text), strings.NewReader(string(body)))))
	if err != nil {
		return nil
	}
	return r
}

// fromHere: the request names this machine, and a page of another site did not send it.
func fromHere(r *http.Request) bool {
	u, err := url.Parse("http://" + r.Host)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	if !strings.EqualFold(u.Hostname(), "localhost") && (ip == nil || !ip.IsLoopback()) {
		return false
	}
	for _, v := range r.Header["Origin"] {
		if !strings.EqualFold(v, "http://"+strings.TrimSuffix(r.Host, ":80")) {
			return false
		}
	}
	for _, v := range r.Header["Sec-Fetch-Site"] {
		if !slices.Contains([]string{"none", "same-origin"}, v) {
			return false
		}
	}
	return true
}

func bears(r *http.Request, token string) bool {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "bearer") && rest == token
}

// emptyJSON: nothing but white space, or an object without members.
func emptyJSON(b []byte) bool {
	if strings.Trim(string(b), " \t\r\n") == "" {
		return true
	}
	var members map[string]json.RawMessage
	return json.Unmarshal(b, &members) == nil && members != nil && len(members) == 0
}
