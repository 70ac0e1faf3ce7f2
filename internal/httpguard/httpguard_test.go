package httpguard

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSentence: one line, valid, and no longer than people read.
func TestSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"one\ntwo": "one; two", "a\xffb": "a\uFFFDb", strings.Repeat("ü", maxDetail): strings.Repeat("ü", maxDetail/2) + "…",
	} {
		if got := Sentence(errors.New(text)); got != want {
			t.Errorf("%.20q: %.40q", text, got)
		}
		if _, err := json.Marshal(want); err != nil {
			t.Error(err)
		}
	}
}

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9/x", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// TestCrossSite: a page is the listener's own if scheme, host and port are.
func TestCrossSite(t *testing.T) {
	t.Parallel()
	const here, tls = "127.0.0.1:9", "https"
	for _, c := range []struct {
		host, forwarded string
		remote          bool // the listener is not on loopback
		origins         []string
		own             bool
	}{
		{here, "", false, nil, true},
		{here, "", false, []string{"http://127.0.0.1:9"}, true},
		{"LocalHost:9", "", false, []string{"HTTP://localhost:9"}, true},
		{"[::1]:9", "", false, []string{"http://[::1]:9"}, true},
		{"localhost:80", "", false, []string{"http://localhost"}, true},
		{"localhost", "", false, []string{"http://localhost"}, true},
		{here, "", false, []string{"https://127.0.0.1:9"}, false},
		{here, tls, false, []string{"https://127.0.0.1:9"}, false},
		{here, "", true, []string{"https://127.0.0.1:9"}, false},
		{"ops.example", tls, true, []string{"https://ops.example"}, true},
		{"ops.example:443", tls, true, []string{"https://ops.example"}, true},
		{"ops.example:8443", tls, true, []string{"https://ops.example:8443"}, true},
		{"ops.example", tls, true, []string{"http://ops.example"}, false},
		{"ops.example", "http", true, []string{"https://ops.example"}, false},
		{"localhost", "", false, []string{"https://localhost"}, false},
		{here, "", false, []string{"http://127.0.0.1:8"}, false},
		{here, "", false, []string{"http://127.0.0.1"}, false},
		{"[::1]:9", "", false, []string{"http://127.0.0.1:9"}, false},
		{here, "", false, []string{"http://127.0.0.1:9/"}, false},
		{here, "", false, []string{"http://user@127.0.0.1:9"}, false},
		{here, "", false, []string{"http://127.0.0.1:9 http://127.0.0.1:9"}, false},
		{here, "", false, []string{"http://127.0.0.1:9", "http://127.0.0.1:9"}, false},
		{here, "", false, []string{"file://127.0.0.1:9"}, false},
		{here, "", false, []string{"null"}, false},
		{here, "", false, []string{""}, false},
	} {
		r := request()
		r.Host, r.Header["Origin"] = c.host, c.origins
		if c.origins == nil {
			delete(r.Header, "Origin")
		}
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-Proto", c.forwarded)
		}
		ip := net.IPv4(127, 0, 0, 1)
		if c.remote {
			ip = net.IPv4(192, 0, 2, 7)
		}
		if got := NewHosts("", &net.TCPAddr{IP: ip}, c.remote).crossSite(r); got == c.own {
			t.Errorf("%+v: taken for another site: %v", c, got)
		}
	}
	for site, own := range map[string]bool{"same-origin": true, "none": true, "same-site": false, "cross-site": false, "": false} {
		if got := (Hosts{}).crossSite(request("Sec-Fetch-Site", site)); got == own {
			t.Errorf("Sec-Fetch-Site %q: %v", site, got)
		}
	}
	if !(Hosts{}).crossSite(request("Sec-Fetch-Site", "none", "Sec-Fetch-Site", "cross-site")) {
		t.Error("the second Sec-Fetch-Site is not read")
	}
}

func TestHostsByBinding(t *testing.T) {
	t.Parallel()
	addr := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 9091} }
	loopback, pod, all := addr("127.0.0.1"), addr("192.0.2.7"), addr("::")
	for _, tt := range []struct {
		name, configured string
		bound            net.Addr
		token            bool
		host             string
		want             bool
	}{
		{"a token on loopback does not open names", "127.0.0.1:9091", loopback, true, "evil.example", false},
		{"the configured name", "Sidecar.internal:9091", loopback, false, "sidecar.INTERNAL:9091", true},
		{"any name off loopback with a token", ":9091", all, true, "wms.svc", true},
		{"but not none", ":9091", all, true, "", false},
		{"the bound address", "192.0.2.7:9091", pod, false, "192.0.2.7:9091", true},
		{"another address", "192.0.2.7:9091", pod, false, "192.0.2.8", false},
		{"nothing is known of another kind of address", "x", &net.UnixAddr{Name: "x"}, false, "x", false},
	} {
		if got := NewHosts(tt.configured, tt.bound, tt.token).Allow(tt.host); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestDepthOfJSON: no deeper than sixteen, whatever would be made of it.
func TestDepthOfJSON(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte { return []byte(`{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + "}") }
	if err := inspect(nested(maxDepth)); err != nil {
		t.Error(err)
	}
	for _, b := range [][]byte{nested(maxDepth + 1), []byte(strings.Repeat(`{"a":`, 100_000))} {
		if err := inspect(b); err == nil || !strings.Contains(err.Error(), "nested more than 16 deep") {
			t.Errorf("%.30s: %v", b, err)
		}
	}
}
