package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
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

	spoiled map[string]bool // messages of a batch that failed as a whole, until they come alone
}

func newApp(l *ledger, parcels []*parcel, held func(string) bool) *app {
	a := &app{ledger: l, held: held, parcels: map[string]*parcel{}, down: make(chan struct{}), spoiled: map[string]bool{}}
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
	p := a.parcel(m)
	if p == nil {
		return outcome(step{status: 200})
	}
	s := p.step(a.ledger.attempts(p.id))
	a.setSpoiled(p.id, false)
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

// parcel is the parcel of a message, nil if it is not one of this run.
func (a *app) parcel(m *message.Message) *parcel {
	p := a.parcels[m.MessageID]
	switch {
	case p == nil:
		a.ledger.odd("I3 message %q is of no publisher", m.MessageID)
	case sha256.Sum256(m.Body) != p.sum:
		a.ledger.odd("I3 %s came with another body", p.id)
	case m.Headers["mine"] != p.id:
		a.ledger.odd("I3 %s came with header mine = %v", p.id, m.Headers["mine"])
	}
	return p
}

// Route is that of the app.
func (a *app) Route(*message.Message) (route int, url string) { return 0, "" }

// DispatchBatch is one POST of several messages. It fails as a whole if the app does not answer one of them as a list of
// results can say it, and now and then without a reason.
func (a *app) DispatchBatch(ctx context.Context, ms []*message.Message, _ message.TraceContext) (whole message.Outcome, each []message.Outcome) {
	away, down := a.state()
	if away {
		return message.Outcome{Failure: message.FailureRefused, Err: errRefused, RetryAfter: -1, At: time.Now()}, nil
	}
	steps, receipts := make([]step, len(ms)), make([]*receipt, len(ms))
	failed, takes := false, time.Duration(0)
	for i, m := range ms {
		p := a.parcel(m)
		if p == nil {
			return outcome(step{status: 200}), nil
		}
		if before := a.wasSpoiled(p.id); m.Redelivered || m.RetryCount > 0 || before {
			a.ledger.odd("I18 %s was not alone: redelivered %t, retries %d, in a batch that failed %t", p.id, m.Redelivered, m.RetryCount, before)
		}
		s := p.step(a.ledger.attempts(p.id))
		steps[i], receipts[i] = s, a.ledger.receive(p.id, m.RetryCount, !a.held(p.id))
		failed = failed || s.failure != message.FailureNone || s.status > 599 || i == 0 && p.sum[0] < 40
		takes = max(takes, s.takes)
	}
	t := time.NewTimer(takes)
	defer t.Stop()
	answer := func(s step) message.Outcome {
		for i, r := range receipts {
			a.ledger.answer(r, s, false)
			if s.spoiled {
				a.setSpoiled(ms[i].MessageID, true)
			}
		}
		return outcome(s)
	}
	select {
	case <-t.C:
		if failed {
			return answer(one(rand.New(rand.NewPCG(uint64(takes), 0)), spoils...)), nil
		}
	case <-down:
		return answer(step{failure: message.FailureReset, spoiled: true}), nil
	case <-ctx.Done():
		return answer(step{failure: message.FailureInterrupted}), nil
	}
	for i, s := range steps {
		a.ledger.answer(receipts[i], s, false)
		each = append(each, outcome(s))
	}
	return message.Outcome{}, each
}

func (a *app) wasSpoiled(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spoiled[id]
}

func (a *app) setSpoiled(id string, spoiled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spoiled[id] = spoiled
}

// spoils are the ways in which a batch fails as a whole.
var spoils = []step{
	{status: 500, spoiled: true}, {status: 404, spoiled: true}, {status: 429, retryAfter: time.Second, spoiled: true},
	{failure: message.FailureTimeout, spoiled: true}, {failure: message.FailureReset, spoiled: true},
	{failure: message.FailureMalformed, spoiled: true},
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
