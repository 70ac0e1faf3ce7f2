package http1

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sidecar/internal/apptest"
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
