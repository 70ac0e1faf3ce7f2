package app

import (
	"testing"

	"golang.org/x/time/rate"
)

// TestLimits: rates and slots are those of the configuration; what all subscriptions share exists once.
func TestLimits(t *testing.T) {
	t.Parallel()
	first := load(t, "SIDECAR_MAX_RATE=600/m", "SIDECAR_MAX_CONCURRENCY=19", "SIDECAR_RATE_LIMIT=100/s")
	second := load(t, "SIDECAR_SERVICE=demo-refunds")
	a := fresh(t, together(first, second))
	own, other := a.subscriptions[0].limits.rates, a.subscriptions[1].limits.rates
	if len(own) != 2 || own[0].Limit() != 100 || own[0].Burst() != 10 {
		t.Errorf("limiters of the first: %v", own)
	}
	if len(other) != 1 || other[0] != own[1] || other[0].Limit() != rate.Limit(10) || other[0].Burst() != 1 {
		t.Errorf("limiters of the second: %v", other)
	}
	if s := a.subscriptions[1].limits.slots; len(s) != 1 || cap(s[0]) != 19 || s[0] != a.limits.slots[0] {
		t.Errorf("slots %v of %v", s, a.limits.slots)
	}
}

// TestEachHasASlot: one subscription cannot take all slots.
func TestEachHasASlot(t *testing.T) {
	t.Parallel()
	c := load(t, "SIDECAR_MAX_CONCURRENCY=4", "SIDECAR_CONCURRENCY=3")
	l := newLimits(together(c, c, c)).of(c, 1)
	if len(l.slots) != 2 || cap(l.slots[0]) != 2 || cap(l.slots[1]) != 4 {
		t.Errorf("slots %v", l.slots)
	}
}

// TestNoLimits: without a bound nothing is shared, and a bound that is the sum is none.
func TestNoLimits(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"", "SIDECAR_MAX_CONCURRENCY=20"} {
		first := load(t, env)
		if l := newLimits(together(first, first)); l.rates != nil || l.slots != nil {
			t.Errorf("%q: %+v", env, l)
		}
	}
}
