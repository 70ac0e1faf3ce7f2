package consume

import (
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// settle carries a settlement out: at once where it is a frame to the broker, on a goroutine of its own where it waits
// for a confirm or for time to pass.
func (s *session) settle(r *record) {
	if r.s.Pause > 0 {
		s.c.o.Flow.PauseFor(r.s.Pause)
	}
	switch {
	case s.gone(): // the message is delivered again, and that delivery decides: neither park nor copy it
		if r.s.Verdict.Action != message.Release {
			r.release(message.ReasonSessionLost)
		}
		s.end(r)
	case r.s.Verdict.Reason == message.ReasonAppDown:
		s.beside(r.retain(), s.retreat)
	case r.s.Publish != nil:
		s.beside(r.retain(), s.replace)
	case r.s.Hold > 0 || r.s.Jitter > 0:
		s.delay(r.retain())
	default:
		s.end(r)
	}
}

// end ends a delivery: it writes the record, replies the verdict to a canary, and hands the settlement to the settler.
// Every delivery ends here, once. The record comes first: a requeued message can be delivered and recorded again before
// this goroutine runs on.
func (s *session) end(r *record) {
	v := &r.s.Verdict
	s.c.write(r)
	if r.reply != "" {
		s.c.replyVerdict(r)
	}
	if v.Cause.Suspect != nil {
		v.Cause.Suspect.Settled(r.s.Final == topology.FinalRequeue)
	}
	r.ended = true
	r.recycle()
	s.hand(ending{tag: r.tag, action: v.Action, reason: v.Reason, final: r.s.Final})
}

func (s *session) hand(e ending) {
	s.settler.endings <- e
	s.outstanding.Done()
}
