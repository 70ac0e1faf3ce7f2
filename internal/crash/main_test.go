package crash

import (
	"testing"

	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is a sidecar of two workers on dir, as far as the guard is concerned.
type process struct {
	*Guard
	log *brokertest.Log
}

func begin(t *testing.T, dir string) process {
	t.Helper()
	log := &brokertest.Log{}
	g, err := Open(Options{Dir: dir, Queue: "q", Limit: 2, Workers: 2, Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return process{g, log}
}

// die ends the process as kill -9 would: nothing is wiped out, the lock is gone.
func (p process) die(t *testing.T) {
	t.Helper()
	if err := p.journal.f.Close(); err != nil {
		t.Fatal(err)
	}
}

func redelivered(id string) *message.Message {
	m := arrived(id)
	m.Redelivered = true
	return m
}

func arrived(id string) *message.Message {
	return &message.Message{MessageID: id, Body: []byte(id), Exchange: "e", RoutingKey: "k"}
}

// enter has worker n begin a message.
func (p process) enter(t *testing.T, n int, m *message.Message) *Watch {
	t.Helper()
	w := p.Watch(n)
	w.Meet(m)
	if err := w.Enter(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return w
}
