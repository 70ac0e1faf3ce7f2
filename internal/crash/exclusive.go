package crash

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// exclusive lets messages be POSTed together, except suspects: a suspect waits until no other message is being POSTed,
// and no later message is POSTed before it or beside it. The next crash then has one suspect.
type exclusive struct {
	turns *semaphore.Weighted // first come, first served

	mu     sync.Mutex
	inHand int
	begun  uint64 // turns that have begun: the number of the last one
	shared uint64 // the last turn that began while another attempt was under way
}

func newExclusive() *exclusive { return &exclusive{turns: semaphore.NewWeighted(maxSlots)} }

var errLost = errors.New("the delivery's session has ended")

// enter waits for a turn and returns its number. The error is the cause of ctx, or errLost when lost is closed.
func (t *exclusive) enter(ctx context.Context, lost <-chan struct{}, weight int64) (turn uint64, err error) {
	if !t.turns.TryAcquire(weight) {
		waiting, end := context.WithCancelCause(ctx)
		defer end(nil)
		go func() {
			select {
			case <-lost:
				end(errLost)
			case <-waiting.Done():
			}
		}()
		if t.turns.Acquire(waiting, weight) != nil {
			return 0, fmt.Errorf("wait for a turn: %w", context.Cause(waiting))
		}
	}
	select { // the turn may have come at the same time as the reason not to take it
	case <-lost: // the broker delivers the message again
		err = errLost
	default:
		err = context.Cause(ctx)
	}
	if err != nil {
		t.turns.Release(weight)
		return 0, fmt.Errorf("wait for a turn: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun++
	if t.inHand++; t.inHand > 1 {
		t.shared = t.begun
	}
	return t.begun, nil
}

func (t *exclusive) leave(weight int64) {
	t.mu.Lock()
	t.inHand--
	t.mu.Unlock()
	t.turns.Release(weight)
}

// solitary reports whether no other attempt was under way at any time since the turn began.
func (t *exclusive) solitary(turn uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return turn > t.shared
}
