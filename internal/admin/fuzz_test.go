package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
	"sidecar/internal/openapitest"
	"sidecar/internal/telemetry"
)

// FuzzControl sends any request to the control listener's handlers. What changed something must have been a POST to
// exactly that path, from this machine's own pages or none, with the token and without a field that means something;
// every refusal must be a problem document; and neither answer nor log may hold a token. With the read token nothing changes. What is said here about a
// request is said in other terms than in guard: over net/url and encoding/json.
func FuzzControl(f *testing.F) {
	own := "127.0.0.1:9091"
	q := away(f)
	f.Add("POST", "/pause", own, "", "", "", "Bearer "+token, []byte{})
	f.Fuzz(func(t *testing.T, method, target, host, origin, site, contentType, auth string, body []byte) {
		r := parse(method, target, host, origin, site, contentType, auth, body)
		if r == nil {
			return
		}
		state, log := newFakeState(), new(apptest.Log)
		state.onDrain = func() { close(state.draining) }
		s := New(Options{
			AdminAddr: ":0", ControlAddr: own, Token: func() string { return token }, ReadToken: func() string { return readToken },
			State: state, DeadLetters: q, Logger: telemetry.NewLogger(log, "debug", "json"),
		})
		s.hosts = httpguard.NewHosts(own, addr("127.0.0.1"), true)
		s.stop() // so that streams end and no operation begins
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
			t.Fatalf("the answer or the log tells too much: %v %s %s", w.Header(), w.Body, log)
		}
	})
}

// FuzzControlBody sends any body with a request that is right otherwise: nothing at all and an empty JSON object are
// taken, everything else is refused, and nothing changes then.
func FuzzControlBody(f *testing.F) {
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		want := http.StatusOK
		switch {
		case len(body) > maxBody:
			want = http.StatusRequestEntityTooLarge
		case !emptyJSON(body):
			want = http.StatusBadRequest
		}
		state := newFakeState()
		s := New(Options{State: state, Logger: telemetry.NewLogger(new(apptest.Log), "info", "json")})
		s.hosts = httpguard.NewHosts("127.0.0.1:9091", addr("127.0.0.1"), false)
		r := parse("POST", "/pause", "127.0.0.1:9091", "", "", "application/json", "", body)
		w := httptest.NewRecorder()
		s.control.Handler.ServeHTTP(w, r)
		if w.Code != want || (state.called() == "pause") != (want == http.StatusOK) {
			t.Fatalf("%q: %d, want %d; called %s", body, w.Code, want, state.called())
		}
	})
}

// FuzzAction reads any body as each of the actions. One that is taken is JSON as the OpenAPI document describes it, says
// each thing once, and never means all messages when it does not say so. Reading one allocates in proportion to its size.
func FuzzAction(f *testing.F) {
	document := openapitest.Load(f, []byte(openAPIDocument))
	f.Add([]byte(`{"all":true}`))
	var members strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&members, `"%x":[],`, i)
	}
	f.Add([]byte("{" + members.String() + `"all":true}`))
	f.Add([]byte(`{"ids":[` + strings.Repeat(`"a",`, 5000) + `"a"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if cost, bound := allocated(func() { _ = decode(body, new(redriveRequest)) }), 64<<10+100*uint64(len(body)); cost > bound {
			t.Fatalf("%d bytes cost %d, the bound is %d", len(body), cost, bound)
		}
		var redrive redriveRequest
		if decode(body, &redrive) == nil {
			if d, err := redrive.read(); err == nil {
				document.Body(t, "/dlq/redrive", body)
				meansIt(t, body, d.Selection, redrive.All)
				if d.Rate < 0 || math.IsNaN(d.Rate) || math.IsInf(d.Rate, 0) || d.Canary < 0 {
					t.Fatalf("%s: %+v", body, d)
				}
			}
		}
		var discard discardRequest
		if decode(body, &discard) == nil {
			if s, err := discard.read(); err == nil && (discard.DryRun || discard.Confirm != "") {
				document.Body(t, "/dlq/discard", body)
				meansIt(t, body, s, discard.All)
			}
		}
		var purge purgeRequest
		if decode(body, &purge) == nil && purge.Confirm != "" {
			document.Body(t, "/dlq/purge", body)
			meansIt(t, body, deadletter.Selection{}, true)
		}
	})
}

// allocated is what f allocates in bytes, if nothing runs beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func meansIt(t *testing.T, body []byte, s deadletter.Selection, all bool) {
	if s.Filter.Empty() != all || s.Limit < 0 {
		t.Fatalf("%s: %+v", body, s)
	}
	// What is said twice does not survive being read.
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if fields(v) != keys(body) {
		t.Fatalf("%s says something twice", body)
	}
}

// fields counts the fields of all objects in v.
func fields(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += 1 + fields(e)
		}
	case []any:
		for _, e := range v {
			n += fields(e)
		}
	}
	return n
}

// keys counts the names of fields in a JSON text.
func keys(body []byte) (n int) {
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		v, err := d.Token()
		if err != nil {
			return n
		}
		_, text := v.(string)
		if rest := bytes.TrimLeft(body[d.InputOffset():], jsonSpace); text && bytes.HasPrefix(rest, []byte(":")) {
			n++
		}
	}
}

// FuzzQuery reads any query as that of a list. One that is taken is as the OpenAPI document describes it, within the
// bounds, and filters by all that it says.
func FuzzQuery(f *testing.F) {
	document := openapitest.Load(f, []byte(openAPIDocument))
	f.Add("limit=1")
	f.Fuzz(func(t *testing.T, query string) {
		r := &http.Request{URL: &url.URL{Path: "/admin/dlq/queues/q/messages", RawQuery: query}}
		l, err := readQuery(r, parameters{limit: true, scan: true, body: true, conditions: true})
		if err != nil {
			return
		}
		document.Check(t, &openapitest.Exchange{
			Method: http.MethodGet, URL: r.URL, Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Answer: []byte(`{"summary":{"queue":"q","total":0,"scanned":0,"matched":0,"complete":true},"messages":[]}`),
		})
		if l.scan.Limit < 1 || l.scan.Limit > 1000 || l.scan.Depth < 1 || l.scan.Depth > 1_000_000 {
			t.Fatalf("%s: %+v", query, l.scan)
		}
		values := r.URL.Query()
		for _, name := range []string{"limit", "scan", "body"} {
			values.Del(name)
		}
		if l.filter.Empty() != (len(values) == 0) || l.bodies != (r.URL.Query().Get("body") == "true") {
			t.Fatalf("%s: %+v", query, l)
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
		if !strings.EqualFold(v, "http://"+r.Host) && !strings.EqualFold(v, "https://"+r.Host) {
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
