package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"sidecar/internal/message"
)

var (
	errRefused = errors.New("connection refused")
	errReset   = errors.New("connection reset by peer")
)

// app is the service beside the sidecar: it does with each message what its parcel says. It takes the place of the HTTP
// client.
type app struct {
	ledger  *ledger
	held    func(id string) bool // whether the broker still counts on the sidecar for a message
	parcels map[string]*parcel

	mu   sync.Mutex
	down chan struct{} // closed while the app is away
	away bool
}

func newApp(l *ledger, parcels []*parcel, held func(string) bool) *app {
	a := &app{ledger: l, held: held, parcels: map[string]*parcel{}, down: make(chan struct{})}
	for _, p := range parcels {
		a.parcels[p.id] = p
	}
	return a
}

// kill makes the app go away with whatever it was doing.
func (a *app) kill() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.away {
		a.away = true
		close(a.down)
	}
}

func (a *app) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		a.away = false
		a.down = make(chan struct{})
	}
}

func (a *app) state() (away bool, down <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.away, a.down
}

func (a *app) probe(context.Context) error {
	if away, _ := a.state(); away {
		return errRefused
	}
	return nil
}

// Dispatch is one POST.
func (a *app) Dispatch(ctx context.Context, m *message.Message) message.Outcome {
	away, down := a.state()
	if away {
		return message.Outcome{Failure: message.FailureRefused, Err: errRefused, RetryAfter: -1, At: time.Now()}
	}
	p := a.parcels[m.MessageID]
	switch {
	case p == nil:
		a.ledger.odd("I3 message %q is of no publisher", m.MessageID)
		return outcome(step{status: 200})
	case sha256.Sum256(m.Body) != p.sum:
		a.ledger.odd("I3 %s came with another body", p.id)
	case m.Headers["mine"] != p.id:
		a.ledger.odd("I3 %s came with header mine = %v", p.id, m.Headers["mine"])
	}
	s := p.step(a.ledger.attempts(p.id))
	r := a.ledger.receive(p.id, m.RetryCount, !a.held(p.id))
	t := time.NewTimer(s.takes)
	defer t.Stop()
	select {
	case <-t.C:
		a.ledger.answer(r, s, false)
		return outcome(s)
	case <-down:
		s = step{failure: message.FailureReset}
		a.ledger.answer(r, s, true)
		return outcome(s)
	case <-ctx.Done():
		s = step{failure: message.FailureInterrupted}
		a.ledger.answer(r, s, false)
		return outcome(s)
	}
}

// outcome is what the HTTP client would have made of a step.
func outcome(s step) message.Outcome {
	o := message.Outcome{Status: s.status, Failure: s.failure, Disposition: s.disposition, RetryAfter: -1, Elapsed: s.takes, At: time.Now()}
	if s.retryAfter > 0 {
		o.RetryAfter = s.retryAfter
	}
	if s.failure != message.FailureNone {
		o.Err = errReset
	}
	return o
}
