package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"sidecar/internal/sim/model"
)

// trouble is a kind of fault.
type trouble string

const (
	cut        trouble = "cut"         // the connection breaks at a frame, before or after it is carried out
	freeze     trouble = "freeze"      // the connection is half open from a frame on
	withhold   trouble = "withhold"    // a publish is taken and not confirmed, then the connection breaks
	refuse     trouble = "nack"        // a publish is not taken
	dlqGone    trouble = "dlq deleted" // the dead-letter queue is deleted and returns
	alarm      trouble = "alarm"       // publishers are blocked
	restart    trouble = "restart"     // the broker goes away and returns
	unconsumed trouble = "cancel"      // the broker cancels the consumer
	sigterm    trouble = "sigterm"     // the sidecar drains, another one starts
	stopNow    trouble = "stop now"    // the same with hardly any grace
	kill       trouble = "kill"        // the sidecar dies, another one starts
	appAway    trouble = "app away"    // the app dies with what it was doing, and returns
)

// fault is one thing that goes wrong, at the n-th step of a connection or after some time.
type fault struct {
	what       trouble
	connection string
	n          int // of the connection's steps, of its publishes for withhold and nack
	after      bool
	delay      time.Duration // for what does not wait for a step
	lasts      time.Duration

	at    time.Time // when it happened
	ended time.Time // of a sigterm: when the process had ended
}

func (f *fault) String() string {
	return fmt.Sprintf("%s on %q at step %d (after: %t) or after %v, lasting %v", f.what, f.connection, f.n, f.after, f.delay, f.lasts)
}

// timed faults wait for a moment, not for a frame.
func (f *fault) timed() bool {
	switch f.what {
	case sigterm, stopNow, kill, appAway:
		return true
	}
	return false
}

// explains reports whether a message may be delivered or published twice because of the fault.
func (f *fault) explains() bool {
	switch f.what {
	case refuse, dlqGone, sigterm, appAway:
		return false
	}
	return true
}

// repeats reports whether a message that the app has answered may be POSTed again at that time because of the fault, one
// of all that happened. The process remembers the outcome of a message whose settlement was lost, so that takes its end
// before the copy came, which a pause can delay; or a second copy of the message: a publish whose confirm was lost.
func (f *fault) repeats(all []*fault, at time.Time) bool {
	switch f.what {
	case kill, stopNow, restart, alarm:
		return true
	}
	return f.explains() && (f.connection == publishing || slices.ContainsFunc(all, func(end *fault) bool {
		return end.what == sigterm && !end.ended.Before(f.at) && !end.at.After(at)
	}))
}

// givesBack reports whether f is a stop during which the broker took no publish, because of one of all faults: what had
// failed then goes back to its queue, and the attempt is not counted. After a lost connection the sidecar waits before
// it connects again, no longer than the connection was away.
func (f *fault) givesBack(all []*fault) bool {
	return f.what == sigterm && slices.ContainsFunc(all, func(p *fault) bool {
		until := p.at.Add(p.window())
		if p.explains() {
			until = until.Add(p.lasts)
		}
		return p.what != sigterm && p.what != appAway && !p.at.After(f.ended) && !until.Before(f.at)
	})
}

// window is how long after it happened a fault may still be the reason for something.
func (f *fault) window() time.Duration {
	switch f.what {
	case freeze: // until both ends have noticed
		return time.Minute
	case withhold, alarm: // until the publish is given up
		return f.lasts + 45*time.Second
	}
	return f.lasts + 2*time.Second
}

// reason reports whether the fault may be why something happened to a message between two moments.
func (f *fault) reason(from, to time.Time) bool {
	return f.explains() && !f.at.After(to) && !f.at.Add(f.window()).Before(from)
}

// hides reports whether the sidecar may not have noticed yet that its session is gone.
func (f *fault) hides(at time.Time) bool {
	if f.what == freeze {
		return f.reason(at, at)
	}
	return f.explains() && !f.at.After(at) && at.Sub(f.at) <= time.Millisecond
}

var troubles = []trouble{
	cut, cut, cut, cut, freeze, withhold, withhold, refuse, dlqGone, alarm, restart, unconsumed, sigterm, stopNow, kill, appAway,
}

func drawFaults(r *rand.Rand, messages int) []*fault {
	faults := make([]*fault, 0, 6)
	for range 1 + r.IntN(5) {
		f := &fault{
			what: one(r, troubles...), connection: one(r, consuming, publishing), n: 1 + r.IntN(30+3*messages), after: chance(r, 50),
			delay: between(r, 0, 30*time.Second), lasts: between(r, 0, 15*time.Second),
		}
		switch f.what {
		case withhold, refuse:
			f.connection, f.n, f.after = publishing, 1+r.IntN(15), false
		case dlqGone, alarm, restart, unconsumed:
			f.connection = consuming
		}
		faults = append(faults, f)
	}
	return faults
}

// hook is where faults that wait for a frame happen. The broker is locked.
func (w *world) hook(s model.Step) model.Effect {
	if s.Connection != consuming && s.Connection != publishing || w.healed.Load() {
		return model.None
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.counts[s.Connection]
	if !s.After {
		c.steps++
		if s.Publish() {
			c.publishes++
		}
	}
	for i, f := range w.waiting {
		n := c.steps
		if f.what == withhold || f.what == refuse {
			if n = c.publishes; !s.Publish() {
				continue
			}
		}
		if f.connection == s.Connection && f.n == n && f.after == s.After {
			w.waiting = append(w.waiting[:i:i], w.waiting[i+1:]...)
			return w.strike(f)
		}
	}
	return model.None
}

// strike makes a fault happen that waited for a frame. What needs the broker begins as soon as it is free.
func (w *world) strike(f *fault) model.Effect {
	w.ledger.strike(f)
	w.log.Info("fault", "what", f.String())
	soon := func(do func()) { time.AfterFunc(0, do) }
	later := func(do func()) { time.AfterFunc(f.lasts, func() { w.unlessHealed(do) }) }
	switch f.what {
	case cut:
		return model.Cut
	case freeze:
		return model.Freeze
	case withhold:
		later(func() { w.broker.Cut(f.connection) })
		return model.Withhold
	case refuse:
		return model.Nack
	case dlqGone:
		soon(w.deleteDLQ)
		later(w.restoreDLQ)
	case alarm:
		soon(func() { w.unlessHealed(func() { w.broker.Alarm(true) }) })
		later(func() { w.broker.Alarm(false) })
	case restart:
		soon(func() { w.unlessHealed(w.broker.Stop) })
		later(w.broker.Start)
	case unconsumed:
		soon(func() { w.broker.CancelConsumers(w.plan.Queue) })
	}
	return model.None
}

// await makes a fault happen that waits for its moment.
func (w *world) await(f *fault) {
	time.Sleep(f.delay)
	w.process <- struct{}{}
	defer func() { <-w.process }()
	if w.healed.Load() {
		return
	}
	w.ledger.strike(f)
	w.log.Info("fault", "what", f.String())
	switch f.what {
	case appAway:
		w.app.kill()
		time.Sleep(f.lasts)
		w.app.start()
		return
	case sigterm:
		w.sidecar.stop(2 * time.Minute)
		f.ended = time.Now()
	case stopNow:
		w.sidecar.stop(f.lasts / 100)
	case kill:
		w.sidecar.kill()
	}
	time.Sleep(f.lasts / 4)
	w.sidecar = w.startSidecar()
}
