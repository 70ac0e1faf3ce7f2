package crash

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"sidecar/internal/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// process is a sidecar of two workers on dir, as far as the guard is concerned.
type process struct {
	*Guard
	log *lines
}

func begin(t *testing.T, dir string) process {
	t.Helper()
	log := &lines{}
	g, err := Open(Options{Dir: dir, Queue: "q", Limit: 2, Workers: 2, Logger: slog.New(slog.NewTextHandler(log, nil))})
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
