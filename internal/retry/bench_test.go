package retry

import (
	"errors"
	"testing"
	"time"

	"sidecar/internal/message"
)

// judgement is an outcome that is judged often.
type judgement struct {
	name string
	o    message.Outcome
}

func judgements() []judgement {
	return []judgement{
		{"204", message.Outcome{Status: 204, RetryAfter: -1}},
		{"503", message.Outcome{Status: 503, RetryAfter: -1}},
		{"429-retry-after", message.Outcome{Status: 429, RetryAfter: 7 * time.Second}},
		{"425", message.Outcome{Status: 425, RetryAfter: -1}},
		{"refused", message.Outcome{Failure: message.FailureRefused, Err: errors.New("connection refused"), RetryAfter: -1}},
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, j := range judgements() {
		b.Run(j.name, func(b *testing.B) {
			p, m := policy(), &message.Message{MaxRetries: 10}
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(m, j.o)
			}
		})
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	for _, j := range judgements() {
		p, m := policy(), &message.Message{MaxRetries: 10}
		if n := testing.AllocsPerRun(100, func() { p.Decide(m, j.o) }); n != 0 {
			t.Errorf("%s: %v allocations", j.name, n)
		}
	}
}
