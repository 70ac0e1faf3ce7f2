package test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// plain follows nothing and keeps no connection, so that a stopping sidecar never waits for a test's idle connection.
var plain = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// get returns status and body; status 0 when nothing answered.
func (s *sidecar) get(addr, path string) (int, string) {
	return s.request(http.MethodGet, addr, path, nil)
}

func (s *sidecar) post(addr, path string) (int, string) {
	return s.request(http.MethodPost, addr, path, nil)
}

func (s *sidecar) request(method, addr, path string, edit func(*http.Request)) (int, string) {
	s.t.Helper()
	status, _, body := s.do(method, addr, path, edit)
	return status, body
}

func (s *sidecar) do(method, addr, path string, edit func(*http.Request)) (int, http.Header, string) {
	s.t.Helper()
	req := must.Get(http.NewRequestWithContext(context.Background(), method, "http://"+addr+path, nil))(s.t)
	if edit != nil {
		edit(req)
	}
	res, err := plain.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(b)
}

// metric adds up the samples of a metric whose labels hold all of the given `name="value"` pairs.
func (s *sidecar) metric(name string, labels ...string) float64 {
	s.t.Helper()
	_, text := s.get(s.admin, "/metrics")
	sum := 0.0
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		metric, rest, _ := strings.Cut(series, "{")
		if !ok || metric != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			sum += v
		}
	}
	return sum
}

// result is what a subcommand that ends left behind.
type result struct {
	stdout, stderr string
	code           int
}

func (r result) all() string { return r.stdout + r.stderr }

// command runs `sidecar args…` to its end.
func command(t testing.TB, env map[string]string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = environ(env), &stdout, &stderr, dieWithTest()
	_ = cmd.Run()
	r := result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		t.Fatalf("sidecar %v did not end within %v:\n%s", args, patience, r.all())
	}
	if strings.Contains(r.all(), "panic:") {
		t.Errorf("sidecar %v panicked:\n%s", args, r.all())
	}
	return r
}
