package crash

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// exclusive lets messages be POSTed together, except suspects: a suspect waits until no other message is being POSTed,
// and no other message is POSTed before it or beside it. The next crash then has one suspect.
type exclusive struct {
	mu      sync.Mutex
	inHand  int
	waiting int           // suspects that wait for their turn
	alone   bool          // a suspect is being POSTed
	begun   uint64        // turns that have begun: the number of the last one
	shared  uint64        // the last turn that began while another attempt was under way
	changed chan struct{} // closed when a turn may begin; nil while none is waited for
}

var errLost = errors.New("the delivery's session has ended")

// enter waits for a turn and returns its number. The error is the cause of ctx, or errLost when lost is closed.
func (t *exclusive) enter(ctx context.Context, lost <-chan struct{}, alone bool) (turn uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if alone {
		t.waiting++
		defer func() { t.waiting--; t.wake() }()
	}
	for err == nil && !t.mayEnter(alone) {
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-lost:
			err = errLost
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		t.mu.Lock()
	}
	if err == nil { // the turn may have come at the same time as the reason not to take it
		select {
		case <-lost: // the broker delivers the message again
			err = errLost
		default:
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("wait for a turn: %w", err)
	}
	t.begun++
	t.inHand++
	t.alone = alone
	if t.inHand > 1 {
		t.shared = t.begun
	}
	return t.begun, nil
}

// mayEnter is called with mu.
func (t *exclusive) mayEnter(alone bool) bool {
	if alone {
		return t.inHand == 0
	}
	return !t.alone && t.waiting == 0
}

func (t *exclusive) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inHand--
	t.alone = false // only a suspect sets it, and it was the one that left
	t.wake()
}

// solitary reports whether no other attempt was under way at any time since the turn began.
func (t *exclusive) solitary(turn uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return turn > t.shared
}

func (t *exclusive) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}
