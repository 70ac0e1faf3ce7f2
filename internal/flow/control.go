package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/message"
)

// Options of a Control.
type Options struct {
	Concurrency int

	// Probe asks the app whether it is there. It bounds its own time.
	Probe    func(ctx context.Context) error
	Refused  func(error) bool // whether a probe's error means that nothing listens
	Interval time.Duration    // between two probes

	// Connects says that a probe shows no more than an answered POST does: none is needed while messages are answered.
	Connects bool

	// CountRefused is SIDECAR_APP_DOWN=retry: an app that cannot be reached does not shut the gate, every message
	// is tried and counted, and only the breaker limits the damage.
	CountRefused bool

	URL    string // of the app, without secrets, for the log and for a pause's detail
	Health string // the URL that Probe asks, without secrets; "" when it only connects
	Routes int    // how many of its paths are judged beside that of URL
	ParkOn []int  // statuses of single messages: never a sign that the app refuses everything

	Logger     *slog.Logger
	Registerer prometheus.Registerer // must add the label queue: the metrics here have none
}

// Control is the gate together with what moves it: the probe, the breaker and the ramp.
type Control struct {
	*Gate
	o       Options
	ramp    *ramp
	breaker *breaker
	rejects *rejects

	appUp    atomic.Bool
	answered atomic.Bool // since the last probe
	probing  sync.Mutex  // one judgement on the app at a time: a refused POST and a probe must not interleave
	failures int         // probes failed in a row
	why      error       // of the last failure; nil: there was none
	probed   bool        // the last failure is that of a probe
	reminder *time.Timer // logs that the app is away; nil: Run does not run
}

// An app may take downSoon to start beside the sidecar before a line says that it does not answer. The line comes again
// every downAgain.
const (
	downSoon  = 2 * time.Second
	downAgain = 5 * time.Minute
)

// probeFailures in a row take a running app for away. A refusal needs no second opinion.
const probeFailures = 2

// New returns a Control whose gate is shut until the first probe succeeds.
func New(o Options) *Control {
	c := &Control{Gate: newGate(), o: o}
	c.ramp = newRamp(o.Concurrency, c.Nudge)
	c.breaker, c.rejects = newBreaker(c), newRejects(c)
	register(o.Registerer, c)
	if !o.CountRefused {
		c.Hold(AppDown, errNoAnswer.Error())
	}
	return c
}

var errNoAnswer = errors.New("the app has not answered yet")

// Run probes the app until ctx ends.
func (c *Control) Run(ctx context.Context) error {
	defer c.stop()
	defer c.ramp.stop()
	c.startReminder()
	defer c.stopReminder()
	t := time.NewTicker(c.o.Interval)
	defer t.Stop()
	for {
		if !c.answered.Swap(false) || !c.o.Connects || !c.appUp.Load() {
			c.reportProbe(ctx, c.o.Probe(ctx))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// AppUp returns whether the last probe or POST reached the app.
func (c *Control) AppUp() bool { return c.appUp.Load() }

// Limit is how many messages may be in flight.
func (c *Control) Limit() int {
	return int(min(c.ramp.limit.Load(), c.breaker.limit(), c.rejects.limit()))
}

// Ramping reports whether Limit is still below the full concurrency, or the app is on trial.
func (c *Control) Ramping() bool {
	return int(c.ramp.limit.Load()) < c.o.Concurrency || min(c.breaker.limit(), c.rejects.limit()) < math.MaxInt32
}

// Report takes the outcome of one attempt. On the healthy path it costs a few atomic loads.
func (c *Control) Report(m *message.Message, o *message.Outcome) {
	if o.Failure == message.FailureNone && !c.answered.Load() {
		c.answered.Store(true)
	}
	switch {
	case c.rejects.report(m, o):
		// Whatever the app answers: one message at a time is enough, and the breaker need not count them, too.
	case o.Failure == message.FailureNone &&
		(o.Status < 500 || o.Status < 600 && o.Disposition != message.DispositionNone): // an app that steers is alive
		c.breaker.success()
		c.ramp.grow()
	case o.Failure == message.FailureRefused && !c.o.CountRefused:
		c.probing.Lock()
		c.probed = false
		c.down(o.Err) // at once
		c.probing.Unlock()
	case o.Failure == message.FailureNone && o.Status > 599, o.Failure == message.FailureMalformed,
		o.Failure == message.FailureTooLarge, o.Failure == message.FailureInterrupted, o.Failure == message.FailurePanic,
		!o.Posted():
		// Says nothing about the app's health: one message's trouble, or ours.
	default:
		c.breaker.failure(m, o.Status)
	}
}

// Defers reports whether m has to return to the queue, uncounted and behind the other messages, instead of being
// POSTed: m failed before, and messages that were never tried have to show whether the app is well again.
func (c *Control) Defers(m *message.Message) bool {
	return m.RetryCount > 0 && (c.breaker.defers(m) || c.rejects.defers(m))
}

// PauseFor holds the gate because the app asked for it.
func (c *Control) PauseFor(d time.Duration) {
	if c.HoldFor(RetryAfter, d, "the app sent Retry-After", nil) {
		c.o.Logger.Info("paused", "reason", string(RetryAfter), "url", c.o.URL, "for", d.String())
	}
}

// reportProbe takes a probe's result.
func (c *Control) reportProbe(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.probing.Lock()
	defer c.probing.Unlock()
	if err == nil {
		c.failures = 0
		if !c.appUp.Swap(true) {
			c.ramp.restart(1)
			c.rejects.restart()
			c.reminder.Stop()
			c.o.Logger.Info("app up", "url", c.o.URL)
		}
		c.Lift(AppDown)
		return
	}
	c.failures++
	if !c.appUp.Load() || c.o.Refused(err) || c.failures >= probeFailures {
		c.probed = true
		c.down(err)
	}
}

// down takes the app for away. The caller holds probing.
func (c *Control) down(err error) {
	c.why = err
	was, held := c.appUp.Swap(false), false
	if !c.o.CountRefused || !c.o.Refused(err) {
		held = c.Hold(AppDown, c.downDetail(err))
	}
	if was || held {
		c.logDown()
	}
}

// downDetail says what failed, and of which URL where that is not the one of the messages.
func (c *Control) downDetail(err error) string {
	unwell, answered := errors.AsType[*message.UnwellError](err)
	switch {
	case answered:
		return fmt.Sprintf("%v to GET %s, not 2xx", unwell, c.failedURL())
	case c.probed && c.o.Health != "":
		return fmt.Sprintf("the app does not answer GET %s: %v", c.o.Health, err)
	}
	return fmt.Sprintf("the app does not answer: %v", err)
}

// failedURL returns the URL by which the app was last taken for away; before the first failure, that of the probe.
func (c *Control) failedURL() string {
	if c.probed || c.why == nil {
		return cmp.Or(c.o.Health, c.o.URL)
	}
	return c.o.URL
}

func (c *Control) startReminder() {
	c.probing.Lock()
	defer c.probing.Unlock()
	c.reminder = time.AfterFunc(downSoon, c.remind)
}

func (c *Control) stopReminder() {
	c.probing.Lock()
	defer c.probing.Unlock()
	c.reminder.Stop()
	c.reminder = nil
}

// remind logs that the app is still away.
func (c *Control) remind() {
	c.probing.Lock()
	defer c.probing.Unlock()
	if !c.appUp.Load() {
		c.logDown()
	}
}

// logDown logs why the app is taken for away, and does so again later. With SIDECAR_APP_DOWN=retry this may pause
// nothing.
func (c *Control) logDown() {
	why := cmp.Or(c.why, errNoAnswer)
	fields := []any{"url", c.failedURL(), "error", why}
	if unwell, ok := errors.AsType[*message.UnwellError](why); ok {
		fields = append(fields, "status", unwell.Status, "location", unwell.Location)
	}
	fields = append(fields, "fix", "start the app, or correct SIDECAR_APP_URL")
	if c.Has(AppDown) {
		c.o.Logger.Warn("paused", append([]any{"reason", string(AppDown)}, fields...)...)
	} else {
		c.o.Logger.Warn("app down", fields...)
	}
	if c.reminder != nil {
		c.reminder.Reset(downAgain)
	}
}
