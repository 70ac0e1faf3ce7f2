package http1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sidecar/internal/apptest"
	"sidecar/internal/budget"
	"sidecar/internal/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// content is a Header whose answers have a body of one use.
type content struct{ use Use }

func (content) Reset()            {}
func (content) Field(_, _ []byte) {}
func (c content) Body(status int) (Use, error) {
	if status/100 != 2 {
		return Skip, nil
	}
	return c.use, nil
}

// newClient returns a Client for url that keeps connections for an hour unless idle says otherwise.
func newClient(tb testing.TB, url string, maxIdle int, idle time.Duration) *Client {
	tb.Helper()
	ep, err := ParseEndpoint(url)
	if err != nil {
		tb.Fatal(err)
	}
	c := NewClient(&ep, nil, maxIdle, idle)
	tb.Cleanup(c.Close)
	return c
}

// listen starts an app that answers every request with status, and a Client for it.
func listen(tb testing.TB, status int) (*apptest.Server, *Client) {
	tb.Helper()
	s := apptest.Listen(tb, apptest.Answer(apptest.Status(status)))
	return s, newClient(tb, s.URL, 16, time.Hour)
}

// do posts size bytes within the timeout and returns the status, or the failure.
func do(ctx context.Context, c *Client, size int, timeout time.Duration) (int, message.Failure, error) {
	x := NewExchange(content{Skip})
	x.Begin(nil, time.Now().Add(timeout))
	defer x.End()
	x.Head = fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n", size)
	failure, err := c.Do(ctx, x, bytes.Repeat([]byte("x"), size))
	return x.Answer.Status, failure, err
}

func wantStatus(tb testing.TB, c *Client, size, status int) {
	tb.Helper()
	if got, failure, err := do(context.Background(), c, size, 20*time.Second); err != nil || got != status {
		tb.Errorf("got status %d, failure %q (%v), want status %d", got, failure, err, status)
	}
}

func wantFailure(tb testing.TB, f message.Failure, err error, want message.Failure, says string) {
	tb.Helper()
	if f != want || err == nil || !strings.Contains(err.Error(), says) {
		tb.Errorf("got failure %q (%v), want %q that says %q", f, err, want, says)
	}
}

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

// allocated is what f allocates in bytes, if nothing runs beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// readWithin reads an answer with a budget of limit bytes, and checks what that costs. Its body lasts until the next
// read.
func readWithin(t *testing.T, raw []byte, step, limit int, use Use) (Answer, error) {
	t.Helper()
	memory := budget.New(int64(limit)).Account(budget.Answers)
	x := NewExchange(content{use})
	x.Begin(memory, time.Time{})
	a := &x.Answer
	var err error
	cost := allocated(func() { err = a.Read(&trickle{raw, step}, x.Header) })
	bound := uint64(32 * smallAnswer) // all that was ever allocated, which is more than is held at a time
	if a.in.large {
		bound = 4 * largeAnswer
	}
	if cost > bound || memory.Held() > int64(limit) || (memory.Held() > 0) != a.in.large {
		t.Fatalf("%d bytes cost %d, the bound is %d; large %v, %d held", len(raw), cost, bound, a.in.large, memory.Held())
	}
	x.End()
	if memory.Held() != 0 {
		t.Fatalf("%d bytes were not given back", memory.Held())
	}
	return *a, err
}

func TestAnswersWithoutMemory(t *testing.T) { //nolint:paralleltest // measures what is allocated
	small, large := strings.Repeat("p", 13), strings.Repeat("p", 5000)
	answer := func(body string) string {
		return "HTTP/1.1 200 X\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	long := "HTTP/1.1 200 X\r\nX: " + strings.Repeat("x", 5000) + "\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct {
		raw  string
		use  Use
		free int
		err  error
		kept int
	}{
		"small, kept":              {answer(small), Keep, 1, nil, len(small)},
		"large, kept":              {answer(large), Keep, largeAnswer, nil, len(large)},
		"large, kept, no memory":   {answer(large), Keep, 1, nil, smallAnswer},
		"large, its beginning":     {answer(large), Begin, largeAnswer, nil, smallAnswer},
		"beginning, no memory":     {answer(large), Begin, 1, nil, smallAnswer},
		"small, its beginning":     {answer(small), Begin, 1, nil, len(small)},
		"a large head":             {long, Skip, largeAnswer, nil, 0},
		"a large head, no memory":  {long, Skip, 1, errNoMemory, 0},
		"small, needed":            {answer(small), Need, 1, nil, len(small)},
		"large, needed":            {answer(large), Need, largeAnswer, nil, len(large)},
		"large, needed, no memory": {answer(large), Need, 1, errNoMemory, smallAnswer},
		"large, of no use":         {answer(large), Skip, 1, nil, 0},
	} {
		a, err := readWithin(t, []byte(c.raw), 1000, c.free, c.use)
		if !errors.Is(err, c.err) || a.Status != 200 && c.err == nil || len(a.Body) > c.kept || err == nil && len(a.Body) != c.kept {
			t.Errorf("%s: %v, status %d, %d bytes", name, err, a.Status, len(a.Body))
		}
	}
}

// TestAnswersWaitForMemory: a status is not lost because its headers are long and memory is short for a moment.
func TestAnswersWaitForMemory(t *testing.T) {
	t.Parallel()
	b := budget.New(largeAnswer)
	others := b.Account(budget.Deliveries)
	others.Take(largeAnswer)
	x := NewExchange(content{Skip})
	x.Begin(b.Account(budget.Answers), time.Now().Add(time.Minute))
	read := make(chan error)
	raw := "HTTP/1.1 200 X\r\nX: " + strings.Repeat("x", 5000) + "\r\nContent-Length: 0\r\n\r\n"
	go func() { read <- x.Answer.Read(&trickle{[]byte(raw), 1000}, x.Header) }()
	others.Give(largeAnswer)
	if err := <-read; err != nil {
		t.Error(err)
	}
	x.End()
}
