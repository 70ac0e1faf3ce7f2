package crash

import (
	"testing"

	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process imitates a sidecar with two workers on dir.
type process struct {
	*Guard
	log *brokertest.Log
}

func begin(t testing.TB, dir string) process {
	t.Helper()
	log := &brokertest.Log{}
	g := must.Get(Open(Options{Dir: dir, Queue: "q", Limit: 2, Workers: 2, Logger: log.Logger()}))(t)
	t.Cleanup(g.Close)
	return process{g, log}
}

// die ends the process as kill -9 would: the journal stays as it is, the lock is gone.
func (p process) die(t *testing.T) {
	t.Helper()
	must.Do(t, p.journal.f.Close())
}

func redelivered(id string) *message.Message {
	m := arrived(id)
	m.Redelivered = true
	return m
}

func arrived(id string) *message.Message {
	return &message.Message{MessageID: id, Body: []byte(id), Exchange: "e", RoutingKey: "k"}
}

// attempt is one attempt under way.
type attempt struct{ *slot }

// begin begins an attempt of a message in the journal's slot n.
func (p process) begin(t *testing.T, n int, m *message.Message) attempt {
	t.Helper()
	s := &slot{g: p.Guard, number: n, hasher: newHasher()}
	s.identify(m)
	must.Do(t, s.begin(t.Context(), m))
	return attempt{s}
}

// settle ends the attempt; stays means that its message stays in the queue as it is.
func (a attempt) settle(stays bool) {
	a.end()
	if s := a.unsettled(); s != nil {
		s.Settled(stays)
	}
}
