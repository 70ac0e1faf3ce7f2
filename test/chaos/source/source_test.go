package source

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"sidecar/test/chaos/plan"
)

type noLedger struct{}

func (noLedger) Sync() error { return nil }

// TestGateHandsOutEachNumberOnce, up to the limit and in order, and ends with its input.
func TestGateHandsOutEachNumberOnce(t *testing.T) {
	t.Parallel()
	in, limits := io.Pipe()
	ctx, g := Open(1, 1_000_000, in, io.Discard, noLedger{})
	_, _ = io.WriteString(limits, "10\nnonsense\n")
	next := 0
	for next < 10 {
		from, to, ok := g.Take(ctx, func(r *rand.Rand) int { return 1 + r.IntN(4) })
		if !ok || from != next || to <= from || to > 10 {
			t.Fatalf("%d to %d, %v, want from %d", from, to, ok, next)
		}
		next = to
	}
	_, _ = io.WriteString(limits, "12\n20 "+AtOnce+"\n22\n")
	if s := <-g.AtOnce(); s != (Span{12, 20}) {
		t.Errorf("%v at once", s)
	}
	for _, want := range []Span{{10, 12}, {20, 22}} {
		if from, to, ok := g.Take(ctx, func(*rand.Rand) int { return 2 }); !ok || from != want.From || to != want.To {
			t.Errorf("%d to %d, %v, want %v", from, to, ok, want)
		}
	}
	_ = limits.Close()
	if from, to, ok := g.Take(ctx, func(*rand.Rand) int { return 1 }); ok {
		t.Errorf("%d to %d above the limit", from, to)
	}
}

// TestHostileHeaders: a hostile plan sends a line break, others do not.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	h := Headers(plan.Plan{Kind: plan.Hostile}, "id")
	if evil, ok := h["x-evil"].(string); !ok || !strings.Contains(evil, "\r\n") || len(Headers(plan.Plan{Kind: plan.OK}, "id")) != 2 {
		t.Errorf("%v", h)
	}
}
