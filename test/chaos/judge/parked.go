package judge

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// longestError is the length of x-final-error in bytes.
const longestError = 1024

var integers = []string{"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}

// rightlyParked is I4 and the first half of I7.
func (j *judge) rightlyParked(m *message) {
	if len(m.parked) == 0 {
		return
	}
	if m.plan.Kind != plan.Never {
		failed := 0
		for i := range m.receipts {
			if r := &m.receipts[i]; r.status != 425 && !r.clean() {
				failed++
			}
		}
		if from, to := m.life(); failed+j.attempts(from, to) < j.run.MaxRetries+1 {
			j.violated("I7", "message %d (%s) was parked after %d failures", m.pub.Seq, m.plan, failed)
		}
		if n := len(m.receipts); n > 0 && m.receipts[n-1].clean() && len(m.redriven) == 0 && len(j.during(m.receipts[n-1].at, m.receipts[n-1].answered, "SPB")) == 0 {
			j.violated("I4", "message %d was parked although its last attempt succeeded", m.pub.Seq)
		}
	}
	for _, p := range m.parked {
		j.says(m, p)
	}
}

// says checks what a parked message says of itself.
func (j *judge) says(m *message, p *ledger.Parked) {
	is := func(ok bool, what string) {
		if !ok {
			j.violated("I4", "message %d (%s): %s; headers %v", m.pub.Seq, m.plan, what, p.Headers)
		}
	}
	is(p.Persistent, "parked, but not persistent")
	is(p.Expiration == "", "parked with an expiration")
	is(p.Headers["x-original-queue"] == j.run.Queue, "x-original-queue is wrong")
	is(p.Headers["x-final-retry-count"] == strconv.Itoa(j.run.MaxRetries), "x-final-retry-count is wrong")
	is(slices.Contains(integers, p.Types["x-final-retry-count"]), "x-final-retry-count is no integer")
	is(p.Headers["x-final-reason"] == "max_retries", "x-final-reason is wrong")
	status, answered := p.Headers["x-final-status-code"]
	text, failed := p.Headers["x-final-error"]
	is(answered != failed, "one of x-final-status-code and x-final-error, never both")
	is(len(text) <= longestError && utf8.ValidString(text) && !strings.ContainsAny(text, "\r\n"), "x-final-error is no short line of text")
	if !answered {
		from, to := m.life()
		is(m.plan.Kind != plan.Never || m.plan.Status > 599 || len(j.during(from, to, "SAPB")) > 0, "the app always answered, but there is no x-final-status-code")
		return
	}
	is(slices.Contains(integers, p.Types["x-final-status-code"]), "x-final-status-code is no integer")
	is(slices.ContainsFunc(m.receipts, func(r receipt) bool { return strconv.Itoa(r.status) == status }), "the app never answered x-final-status-code")
}
