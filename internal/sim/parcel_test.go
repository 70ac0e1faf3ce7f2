package sim

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/testkit/judge"
)

// parcel is one message and what the app does with it, attempt by attempt; the last step repeats.
type parcel struct {
	id    string
	body  []byte
	sum   [sha256.Size]byte
	after time.Duration // when it is published
	steps []step
}

// step is one attempt as the app sees it.
type step struct {
	status      int
	failure     message.Failure
	disposition message.Disposition
	retryAfter  time.Duration // 0 = none
	takes       time.Duration
	spoiled     bool // it was in a batch that failed as a whole, and what it would have been is not known
}

// kind judges a step without asking the code under test.
func (s step) kind() judge.Kind {
	switch s.disposition {
	case message.DispositionAck:
		return judge.Accepted
	case message.DispositionRetry:
		return judge.Failed
	case message.DispositionRequeue:
		return judge.NotYet
	case message.DispositionPark:
		return judge.Unwanted
	case message.DispositionDiscard:
		return judge.Discarded
	}
	switch {
	case s.spoiled:
		return judge.Nothing
	case s.failure == message.FailureRefused || s.failure == message.FailureInterrupted:
		return judge.Nothing
	case s.failure != message.FailureNone:
		return judge.Failed
	case s.status >= 200 && s.status < 300:
		return judge.Accepted
	case s.status == 425:
		return judge.NotYet
	case s.status == 422:
		return judge.Unwanted
	}
	return judge.Failed
}

var badStatuses = []int{500, 502, 503, 404, 409, 429, 302, 418, 999, 100}

func drawParcel(r *rand.Rand, i, retries int) *parcel {
	p := &parcel{id: fmt.Sprintf("m%03d", i), after: between(r, 0, 15*time.Second)}
	p.body = make([]byte, r.IntN(200))
	for j := range p.body {
		p.body[j] = byte(r.Uint32())
	}
	p.sum = sha256.Sum256(p.body)
	fail := func() step { return step{status: one(r, badStatuses...)} }
	many := func(n int, s func() step) {
		for range n {
			p.steps = append(p.steps, s())
		}
	}
	good := step{status: one(r, 200, 201, 204)}
	switch n := r.IntN(100); {
	case n < 50:
	case n < 65: // fails as often as it may
		many(1+r.IntN(max(1, retries)), fail)
	case n < 75: // always
		good = fail()
	case n < 77: // has used up its retries when it is not wanted yet
		many(retries, fail)
		many(1, func() step { return step{status: 425} })
		good = fail() // an answer may have been lost on the way here: 425 for ever would never end
	case n < 82:
		many(1+r.IntN(3), func() step { return step{status: 425} })
	case n < 86:
		many(1, func() step { return step{failure: message.FailureTimeout} })
	case n < 89:
		many(1, func() step { return step{failure: one(r, message.FailureReset, message.FailureMalformed)} })
	case n < 91:
		good = step{failure: one(r, message.FailureTimeout, message.FailureReset, message.FailureMalformed)}
	case n < 93:
		good = step{status: 422}
	case n < 96:
		many(1, func() step { return step{status: 503, retryAfter: between(r, time.Second, 4*time.Second)} })
	default:
		good = step{status: one(r, 200, 500), disposition: one(r, message.DispositionAck, message.DispositionRetry,
			message.DispositionPark, message.DispositionDiscard)}
	}
	p.steps = append(p.steps, good)
	for i := range p.steps {
		p.steps[i].takes = between(r, 0, one(r, 5*time.Millisecond, 300*time.Millisecond, 3*time.Second))
		if p.steps[i].failure == message.FailureTimeout {
			p.steps[i].takes = 10 * time.Second
		}
	}
	return p
}

// step is the n-th attempt, from 0.
func (p *parcel) step(n int) step { return p.steps[min(n, len(p.steps)-1)] }

// fate is how a message has to end when nothing goes wrong.
type fate struct {
	attempts int
	end      judge.Kind // accepted, judge.Unwanted or discarded; failed = parked for its retries
	retries  int        // counted before the last attempt
	last     step
}

func (p *parcel) fate(retries int) fate {
	f := fate{}
	for {
		f.last = p.step(f.attempts)
		f.attempts++
		switch k := f.last.kind(); k {
		case judge.Accepted, judge.Unwanted, judge.Discarded:
			f.end = k
			return f
		case judge.Failed, judge.NotYet:
			if f.retries >= retries {
				f.end = judge.Failed
				return f
			}
			if k == judge.Failed {
				f.retries++
			}
		}
	}
}
