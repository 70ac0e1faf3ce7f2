package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errRefused = errors.New("connection refused")
	errSick    = errors.New("503")
)

// app is an app as the probe sees it.
type app struct{ err atomic.Pointer[error] }

func (a *app) set(err error) { a.err.Store(&err) }

func (a *app) probe(context.Context) error {
	if p := a.err.Load(); p != nil {
		return *p
	}
	return nil
}

// start runs a Control against a in the current synctest bubble and stops it with the test.
func start(t *testing.T, a *app, change func(*Options)) *Control {
	t.Helper()
	o := Options{
		Concurrency: 10, Probe: a.probe, Interval: time.Second,
		Refused: func(err error) bool { return errors.Is(err, errRefused) },
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&o)
	}
	c := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// bubble runs f with a Control whose app is there, in virtual time.
func bubble(t *testing.T, f func(t *testing.T, c *Control)) {
	t.Helper()
	bubbleWith(t, &app{}, nil, f)
}

// bubbleWith is bubble for this app and with these options.
func bubbleWith(t *testing.T, a *app, change func(*Options), f func(t *testing.T, c *Control)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, a, change)
		synctest.Wait()
		f(t, c)
	})
}

// subtest is bubbleWith in a test of its own.
func subtest(t *testing.T, name string, change func(*Options), f func(t *testing.T, c *Control)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubbleWith(t, &app{}, change, f) })
}

// wantOpen checks the gate; wrong says what it means when it is not as wanted.
func wantOpen(t *testing.T, c *Control, want bool, wrong string) {
	t.Helper()
	if c.Open() != want {
		t.Fatalf("%s: open %v, holds %v", wrong, !want, c.Holds())
	}
}

// wantLimit checks that the gate is open, and for how many messages.
func wantLimit(t *testing.T, c *Control, want int, when string) {
	t.Helper()
	if !c.Open() || c.Limit() != want {
		t.Fatalf("%s: limit %d, holds %v, want %d", when, c.Limit(), c.Holds(), want)
	}
}

// wantHolds checks the reasons for which the gate is shut, or that are shown.
func wantHolds(t *testing.T, c *Control, want ...Reason) {
	t.Helper()
	var got []Reason
	for _, h := range c.Holds() {
		got = append(got, h.Reason)
	}
	if !slices.Equal(got, want) || c.gauge(t, "sidecar_paused") != float64(len(want)) {
		t.Fatalf("holds %v, want %v", got, want)
	}
}

// gauge is the sum of the gauges of that name.
func (c *Control) gauge(t *testing.T, name string) (sum float64) {
	t.Helper()
	return brokertest.Metric(t, c.o.Registerer.(*prometheus.Registry), name)
}

func (c *Control) answer(status, retries int) {
	c.Report(&message.Message{RetryCount: retries, MaxRetries: 10}, &message.Outcome{Status: status, At: time.Now()})
}

func (c *Control) fail(f message.Failure) {
	c.Report(&message.Message{MaxRetries: 10}, &message.Outcome{Failure: f, Err: errRefused})
}

// refuse answers n first attempts with status.
func (c *Control) refuse(n, status int) {
	for range n {
		c.answer(status, 0)
	}
}

// trip makes the breaker pause.
func (c *Control) trip() {
	for range breakerThreshold {
		c.answer(500, 0)
	}
}

// repeated asks n times whether a message that failed so often is tried, and returns how many are.
func (c *Control) repeated(n, retries int) (tried int) {
	for range n {
		if !c.Defers(&message.Message{RetryCount: retries, MaxRetries: 10}) {
			tried++
		}
	}
	return tried
}

// on answers n first attempts that a route took.
func (c *Control) on(route, n, status int) {
	for range n {
		c.Report(&message.Message{}, &message.Outcome{Status: status, At: time.Now(), Route: route, URL: fmt.Sprintf("http://app/%d", route)})
	}
}
