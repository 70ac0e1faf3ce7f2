package crash

import (
	"context"
	"fmt"
	"sync"
)

// turns lets messages be in hand together, except those that want to be alone: such a one waits until nothing is in
// hand, lets nobody in before it, and has the app and the process to itself. The next crash then has one suspect.
type turns struct {
	mu      sync.Mutex
	inHand  int
	waiting int           // who wants to be alone
	alone   bool          // who is in hand wants to be alone
	begun   uint64        // turns that have begun
	changed chan struct{} // closed when it is worth looking again; nil while nobody waits
}

// turn is one message in hand.
type turn struct {
	number uint64
	first  bool // nothing was in hand when it began
}

// enter waits for a turn. The error is the cause of ctx.
func (t *turns) enter(ctx context.Context, alone bool) (turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if alone {
		t.waiting++
		defer func() { t.waiting--; t.wake() }()
	}
	for !t.free(alone) {
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
			t.mu.Lock()
		case <-ctx.Done():
			t.mu.Lock()
			return turn{}, fmt.Errorf("wait for a turn: %w", context.Cause(ctx))
		}
	}
	t.begun++
	t.inHand++
	t.alone = alone
	return turn{number: t.begun, first: t.inHand == 1}, nil
}

func (t *turns) free(alone bool) bool {
	if alone {
		return t.inHand == 0
	}
	return !t.alone && t.waiting == 0
}

func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inHand--
	t.alone = false // whoever was alone has just left; the others never set it
	t.wake()
}

// solitary reports whether nothing else was in hand at any time since the turn began.
func (t *turns) solitary(x turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return x.first && t.begun == x.number
}

func (t *turns) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}
