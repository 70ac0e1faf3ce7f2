package judge

import kit "sidecar/internal/testkit/judge"

// rightlyParked is I4 and the first half of I7.
func (j *judge) rightlyParked(m *message) {
	if len(m.Parked) == 0 {
		return
	}
	from, to := m.life()
	unanswered := !m.Fails || m.plan.Status > 599 || len(j.during(from, to, "SAPB")) > 0
	all := m.Parked
	m.Parked = j.limited(m, all)
	j.common.Parked(&m.Message, j.attempts(from, to), unanswered, nil)
	m.Parked = all
	n := len(m.Receipts)
	if n > 0 && m.Receipts[n-1].Kind == kit.Accepted && len(m.redriven) == 0 &&
		len(j.during(m.Receipts[n-1].At, m.Receipts[n-1].Done, "SPB")) == 0 {
		j.violated("I4", "%s was parked although its last attempt succeeded", m.Name)
	}
}
