package consume

import (
	"errors"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Everything in this file happens only when crashes are counted.

var (
	errSidecarEnded  = errors.New("crash: the sidecar ended while it had this message")
	errSidecarFailed = errors.New("crash: the sidecar failed over this message") // its log says how
)

// admit waits for the message's turn and reports whether it may be POSTed. One that ended an earlier process is not
// POSTed before its crash is written down: it is published anew with its count, so that the count is known to whichever
// replica gets it next, or parked. Without a way to publish it, the count stays in the journal.
func (w *worker) admit(d delivery, plan *topology.Plan) bool {
	c, m := w.c, &w.rec.m
	w.watch.Meet(m)
	w.met = true
	if w.watch.Unwritten() > 0 {
		v := message.Verdict{Action: message.Requeue, Reason: message.ReasonCrash, Cause: crashed(errSidecarEnded)}
		if w.watch.Due(m) {
			v.Action = message.Park
		}
		if s := plan.Settlement(m, v); s.Final == topology.FinalAck {
			w.rec.s, w.rec.suspicion = s, w.watch.Claim()
			w.watch.Leave(false)
			w.settled = true
			w.settle(d)
			return false
		}
	}
	if err := w.watch.Enter(c.interrupt, m); err != nil {
		c.cut.Add(1)
		w.refrain(d, plan, message.ReasonShutdown, err)
		return false
	}
	if d.run.gone() { // while it waited: the broker delivers it again
		w.refrain(d, plan, message.ReasonUndispatched, nil)
		return false
	}
	return true
}

// refrain gives a message back that was not POSTed.
func (w *worker) refrain(d delivery, plan *topology.Plan, why message.Reason, err error) {
	v := message.Verdict{Action: message.Release, Reason: why}
	if err != nil {
		v.Cause = message.Outcome{Failure: message.FailureInterrupted, Err: err, At: time.Now()}
	}
	w.rec.s = plan.Settlement(&w.rec.m, v)
	w.watch.Leave(true)
	w.settled = true
	w.settle(d)
}

// comesBack reports whether the message is going to be delivered again as it is.
func (w *worker) comesBack() bool {
	return w.rec.s.Publish == nil && w.rec.s.Final == topology.FinalRequeue
}

// appLooks are the pauses before the looks at an app that broke a connection: a process that dies closes its sockets
// one after the other.
var appLooks = []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond}

// countAppCrash counts a crash of the app: it had the whole message, then the connection broke, then nobody listened.
func (w *worker) countAppCrash(v *message.Verdict) {
	if v.Cause.Failure != message.FailureReset || !w.appGone() {
		return
	}
	w.watch.AppCrashed(&w.rec.m)
	if v.Action == message.Retry && w.watch.Due(&w.rec.m) {
		v.Action, v.Reason, v.Delay = message.Park, message.ReasonCrash, 0
	}
}

func (w *worker) appGone() bool {
	ctx := w.c.interrupt
	for _, pause := range appLooks {
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
		if w.c.o.AppGone(ctx) {
			return true
		}
	}
	return false
}

// countPanic counts a failure of the sidecar itself, and reports whether that decided what becomes of the message.
func (w *worker) countPanic(d delivery) (settled bool) {
	if !w.met { // rec.m may be an earlier message
		return false
	}
	defer w.watch.Leave(true)
	defer func() {
		if again := recover(); again != nil {
			w.c.panicked(d.MessageId, again)
			settled = w.settled
		}
	}()
	m := &w.rec.m
	w.watch.Panicked(m)
	v := message.Verdict{
		Action: message.Requeue, Reason: message.ReasonPanic,
		Cause: crashed(errSidecarFailed),
	}
	if w.watch.Due(m) {
		v.Action, v.Reason = message.Park, message.ReasonCrash
	}
	s := d.run.plan.Load().Settlement(m, v)
	if s.Final != topology.FinalAck {
		return false
	}
	w.rec.s, w.rec.suspicion = s, w.watch.Claim()
	w.watch.Leave(false)
	w.settled = true
	w.settle(d)
	return true
}

func crashed(err error) message.Outcome {
	return message.Outcome{Failure: message.FailureCrash, Err: err, RetryAfter: -1, At: time.Now()}
}
