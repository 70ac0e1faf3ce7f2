package flow

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/message"
)

func benchControl() *Control {
	return New(Options{Concurrency: 1, Registerer: prometheus.NewRegistry()})
}

func BenchmarkReportHealthy(b *testing.B) {
	c := benchControl()
	m, o := &message.Message{}, &message.Outcome{Status: 204}
	b.ReportAllocs()
	for b.Loop() {
		c.Report(m, o)
	}
}

// BenchmarkGate is what the consumer asks before it hands a message to a worker.
func BenchmarkGate(b *testing.B) {
	c := benchControl()
	b.ReportAllocs()
	for b.Loop() {
		ask(c)
	}
}

func ask(c *Control) { _, _, _, _ = c.Changed(), c.Open(), c.Ramping(), c.Limit() }

func TestHealthyMessagesAllocateNothing(t *testing.T) {
	c := benchControl()
	m, o := &message.Message{}, &message.Outcome{Status: 204}
	if n := testing.AllocsPerRun(100, func() {
		ask(c)
		c.Report(m, o)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
