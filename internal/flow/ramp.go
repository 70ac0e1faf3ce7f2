package flow

import "sync/atomic"

// ramp bounds how many messages may be in flight. After an absence it starts at one and grows by one with every
// answer, so it doubles each round: a cold app is not met by the whole window at once.
type ramp struct {
	full    int32
	limit   atomic.Int32
	metrics *metrics
}

func newRamp(full int, m *metrics) *ramp {
	r := &ramp{full: int32(full), metrics: m} //nolint:gosec // configuration bounds it to 10000
	r.set(1)
	return r
}

func (r *ramp) set(n int32) {
	r.limit.Store(n)
	r.metrics.limit.Set(float64(n))
}

// restart begins again with at most n in flight.
func (r *ramp) restart(n int) { r.set(min(int32(n), r.full)) } //nolint:gosec // n is a small constant

// grow lets one more in flight. It reports whether the limit changed.
func (r *ramp) grow() bool {
	for {
		n := r.limit.Load()
		if n >= r.full {
			return false
		}
		if r.limit.CompareAndSwap(n, n+1) {
			r.metrics.limit.Set(float64(n + 1))
			return true
		}
	}
}
