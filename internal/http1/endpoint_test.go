package http1

import (
	"strings"
	"testing"
)

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]Endpoint{
		"http://127.0.0.1:8080/":      {Origin: "http://127.0.0.1:8080", network: "tcp", address: "127.0.0.1:8080", Host: "127.0.0.1:8080", Target: "/", serverName: "127.0.0.1"},
		"http://app":                  {Origin: "http://app", network: "tcp", address: "app:80", Host: "app", Target: "/", serverName: "app"},
		"http://[::1]:80/a%20b?c=d":   {Origin: "http://[::1]:80", network: "tcp", address: "[::1]:80", Host: "[::1]:80", Target: "/a%20b?c=d", serverName: "::1"},
		"https://app/in/":             {Origin: "https://app", network: "tcp", address: "app:443", Host: "app", Target: "/in/", secure: true, serverName: "app"},
		"unix:///run/app.sock":        {Origin: "unix:///run/app.sock:", network: "unix", address: "/run/app.sock", Host: "localhost", Target: "/"},
		"unix:///run/app.sock:/":      {Origin: "unix:///run/app.sock:", network: "unix", address: "/run/app.sock", Host: "localhost", Target: "/"},
		"unix:///run/a:b.sock:/x?y=z": {Origin: "unix:///run/a:b.sock:", network: "unix", address: "/run/a:b.sock", Host: "localhost", Target: "/x?y=z"},
	} {
		got, err := ParseEndpoint(raw)
		if err != nil || got != want {
			t.Errorf("%s: got %+v (%v), want %+v", raw, got, err, want)
		}
	}
}

func TestEndpointThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "app:8080", "ftp://app/", "file:///etc/passwd", "http://", "http:///path", "http://app:x/", "http://app/a\r\nb",
		"http://grö.example/", "http://[fe80::1%25eth0]/", "http://a%zz/hunter2", "http://app/%zz", "http:opaque",
	} {
		if _, err := ParseEndpoint(raw); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q was accepted, or the error repeats the URL: %v", raw, err)
		}
	}
}
