package consume

import (
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// plain are the outcomes of most messages. They are not copied.
var plain = func() (all [100]message.Outcome) {
	for i := range all {
		all[i] = message.Outcome{Status: 200 + i, RetryAfter: -1}
	}
	return all
}()

// replaced is the outcome of a message whose replacement was published.
var replaced = message.Outcome{Failure: message.FailureReplaced, RetryAfter: -1}

// lasting returns what settles a copy of the message if this settlement does not arrive; nil: the copy is POSTed.
func (r *record) lasting(by *topology.Settlement) *message.Outcome {
	o := &by.Verdict.Cause
	judged := by.Final != topology.FinalRequeue || by.Verdict.Reason == message.ReasonSessionLost
	switch {
	case by.Final == topology.FinalAck && (by.Publish != nil || by.Detour != nil):
		return &replaced
	case !judged || by.Final == topology.FinalDelay || r.counted: // attempts or order counts a failure
		return nil
	case o.OK() && o.Disposition == message.DispositionNone:
		return &plain[o.Status-200]
	case o.Failure == message.FailureNone && o.Status == 0: // a panic
		return nil
	}
	switch o.Failure {
	case message.FailurePanic, message.FailureInterrupted, message.FailureUndispatched,
		message.FailureForeign, message.FailureNoRoute, message.FailureDeferred:
		return nil
	}
	kept := *o
	if !r.parks {
		kept.Problem, kept.Answer = nil, "" // there may be thousands, each of some KiB, and only a park writes them down
	}
	return &kept
}

// texts returns how many bytes of the app's answer an outcome keeps.
func texts(o *message.Outcome) int {
	n := len(o.Answer)
	if p := o.Problem; p != nil {
		n += len(p.Type) + len(p.Title) + len(p.Detail)
	}
	return n
}
