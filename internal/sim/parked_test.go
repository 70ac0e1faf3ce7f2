package sim

import (
	"crypto/sha256"
	"slices"

	"sidecar/internal/message"
	"sidecar/internal/sim/model"
)

// park judges one message of the dead-letter queue.
func (j *judgement) park(p *parcel, m model.Message, receipts []*receipt) {
	wrong := func(what string, got any) { j.say("I4 %s: %s %v: %s", p.id, what, got, j.story(p.id)) }
	if sha256.Sum256(m.Body) != p.sum || m.Headers["mine"] != p.id {
		j.say("I3 %s is parked with another body or header", p.id)
	}
	if m.Headers["x-original-queue"] != j.s.plan.Queue {
		wrong("x-original-queue", m.Headers["x-original-queue"])
	}
	if m.DeliveryMode != 2 || m.Expiration != "" {
		wrong("delivery mode or expiration", m.DeliveryMode)
	}
	if len(receipts) == 0 {
		wrong("parked without an attempt", "")
		return
	}
	if j.exact && !causedBy(m, receipts[len(receipts)-1]) {
		wrong("the last attempt is not why", m.Headers)
	}
	if !slices.ContainsFunc(receipts, func(r *receipt) bool { return r.answered && causedBy(m, r) }) {
		wrong("no attempt is why", m.Headers)
	}
	j.reason(p, m, receipts, wrong)
}

// reason judges why a message was parked, and how often it had been tried.
func (j *judgement) reason(p *parcel, m model.Message, receipts []*receipt, wrong func(string, any)) {
	retries, ok := m.Headers["x-final-retry-count"].(int32)
	if !ok {
		wrong("x-final-retry-count", m.Headers["x-final-retry-count"])
	}
	failures, killed := 0, false
	for _, r := range receipts {
		if r.answered && r.step.kind() == failed {
			failures++
		}
		killed = killed || r.killed
	}
	want := p.fate(j.s.plan.MaxRetries)
	switch m.Headers["x-final-reason"] {
	case "max_retries":
		if want.end != failed && !killed {
			j.say("I7 %s is parked, and does not always fail: %s", p.id, j.story(p.id))
		}
		if int(retries) != j.s.plan.MaxRetries {
			wrong("x-final-retry-count", retries)
		}
		if failures < j.s.plan.MaxRetries {
			j.say("I7 %s is parked after %d failures of %d: %s", p.id, failures, j.s.plan.MaxRetries, j.story(p.id))
		}
	case "park_status", "disposition":
		if want.end != unwanted {
			j.say("I7 %s is parked, and nobody asked for it: %s", p.id, j.story(p.id))
		}
		if !killed && int(retries) > want.retries || j.exact && !killed && int(retries) != want.retries {
			wrong("x-final-retry-count", retries)
		}
	default:
		wrong("x-final-reason", m.Headers["x-final-reason"])
	}
}

// causedBy reports whether the headers of a parked message tell of an attempt.
func causedBy(m model.Message, r *receipt) bool {
	code, hasCode := m.Headers["x-final-status-code"].(int32)
	text, hasText := m.Headers["x-final-error"].(string)
	if r.step.failure != message.FailureNone {
		return !hasCode && hasText && len(text) > 0 && len(text) <= 1024
	}
	return hasCode && !hasText && int(code) == r.step.status
}
