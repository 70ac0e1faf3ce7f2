package sim

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"sidecar/internal/message"
	"sidecar/internal/sim/model"
	"sidecar/internal/testkit/judge"
)

// record returns what is known of a message, except for where it was parked.
func (j *judgement) record(p *parcel) *judge.Message {
	m := &judge.Message{Name: fmt.Sprintf("%s (%s)", p.id, j.story(p.id)), Sum: string(p.sum[:]), Mark: p.id, Confirmed: true}
	for _, r := range j.receipts[p.id] {
		k := judge.Nothing
		if r.answered {
			k = r.step.kind()
		}
		m.Receipts = append(m.Receipts, judge.Receipt{At: r.at.UnixNano(), Attempt: r.retries + 1, Count: r.retries,
			Status: r.step.status, Kind: k, MayEnd: k.Ends(), Mark: p.id}) // the app compares body and header itself
	}
	return m
}

func parked(m model.Message) *judge.Parked {
	sum := sha256.Sum256(m.Body)
	p := &judge.Parked{Sum: string(sum[:]), Persistent: m.DeliveryMode == 2, Expiration: m.Expiration, Headers: map[string]string{}, Types: map[string]string{}}
	for k, v := range m.Headers {
		p.Headers[k], p.Types[k] = fmt.Sprint(v), fmt.Sprintf("%T", v)
	}
	return p
}

// rightlyParked judges what is in the dead-letter queue, also for another reason than too many failures.
func (j *judgement) rightlyParked(m *judge.Message, want fate, receipts []*receipt, killed bool) {
	unanswered := slices.ContainsFunc(receipts, func(r *receipt) bool { return r.answered && r.step.failure != message.FailureNone })
	j.Parked(m, 0, unanswered, func(p *judge.Parked, retries int) {
		if reason := p.Headers["x-final-reason"]; reason != "park_status" && reason != "disposition" {
			j.violated("I4", "x-final-reason %q: %s", reason, m.Name)
		}
		if want.end != judge.Unwanted {
			j.violated("I7", "parked, and the app did not ask for it: %s", m.Name)
		}
		if !killed && (retries > want.retries || j.exact && retries != want.retries) {
			j.violated("I4", "x-final-retry-count %d: %s", retries, m.Name)
		}
	})
	for _, p := range m.Parked {
		if n := len(m.Receipts); j.exact && n > 0 && !p.Because(&m.Receipts[n-1]) {
			j.violated("I4", "the last attempt is not why, headers %v: %s", p.Headers, m.Name)
		}
	}
}
