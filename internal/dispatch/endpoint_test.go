package dispatch

import (
	"strings"
	"testing"
)

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]endpoint{
		"http://127.0.0.1:8080/":      {network: "tcp", address: "127.0.0.1:8080", host: "127.0.0.1:8080", target: "/", serverName: "127.0.0.1"},
		"http://app":                  {network: "tcp", address: "app:80", host: "app", target: "/", serverName: "app"},
		"http://[::1]:80/a%20b?c=d":   {network: "tcp", address: "[::1]:80", host: "[::1]:80", target: "/a%20b?c=d", serverName: "::1"},
		"https://app/in/":             {network: "tcp", address: "app:443", host: "app", target: "/in/", secure: true, serverName: "app"},
		"unix:///run/app.sock":        {network: "unix", address: "/run/app.sock", host: "localhost", target: "/"},
		"unix:///run/app.sock:/":      {network: "unix", address: "/run/app.sock", host: "localhost", target: "/"},
		"unix:///run/a:b.sock:/x?y=z": {network: "unix", address: "/run/a:b.sock", host: "localhost", target: "/x?y=z"},
	} {
		got, err := parseEndpoint(raw)
		if err != nil || got != want {
			t.Errorf("%s: got %+v (%v), want %+v", raw, got, err, want)
		}
	}
}

func TestEndpointThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "app:8080", "ftp://app/", "file:///etc/passwd", "http://", "http:///path", "http://user:hunter2@app/",
		"http://app/#frag", "http://app:0/", "http://app:70000/", "http://app:x/", "http://app//host/x",
		"http://app/a\r\nb", "http://app/?a b", "http://grö.example/", "http://[fe80::1%25eth0]/", "http://a%zz/hunter2",
		"unix://relative.sock", "unix://", "unix:///" + strings.Repeat("s", 120), "unix:///a.sock:/x y", "unix:///a.sock://x",
		"http://app/%zz", "http:opaque",
	} {
		if _, err := New(Options{URL: raw}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q was accepted, or the error repeats the URL: %v", raw, err)
		}
	}
}

func TestHealthPathThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"health", "//health", "/he alth", "/h\r\n", "/ü"} {
		if _, err := New(Options{URL: "http://127.0.0.1:8080/", HealthPath: path}); err == nil {
			t.Errorf("%q was accepted", path)
		}
	}
}
