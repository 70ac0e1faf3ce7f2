package crash

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// exclusive lets messages be POSTed together, except suspects: a suspect waits until no other message is being POSTed,
// and no later message is POSTed before it or beside it. The next crash then has one suspect.
type exclusive struct {
	turns *semaphore.Weighted // first come, first served
}

func newExclusive() *exclusive { return &exclusive{turns: semaphore.NewWeighted(maxSlots)} }

var errLost = errors.New("the delivery's session has ended")

// enter waits for a turn. The error is the cause of ctx, or errLost when lost is closed.
func (t *exclusive) enter(ctx context.Context, lost <-chan struct{}, alone bool) (err error) {
	if !t.turns.TryAcquire(weight(alone)) {
		waiting, end := context.WithCancelCause(ctx)
		defer end(nil)
		go func() {
			select {
			case <-lost:
				end(errLost)
			case <-waiting.Done():
			}
		}()
		if t.turns.Acquire(waiting, weight(alone)) != nil {
			return fmt.Errorf("wait for a turn: %w", context.Cause(waiting))
		}
	}
	select { // the turn may have come at the same time as the reason not to take it
	case <-lost: // the broker delivers the message again
		err = errLost
	default:
		err = context.Cause(ctx)
	}
	if err != nil {
		t.turns.Release(weight(alone))
		return fmt.Errorf("wait for a turn: %w", err)
	}
	return nil
}

// weight is the part of all turns that a message takes.
func weight(alone bool) int64 {
	if alone {
		return maxSlots
	}
	return 1
}

func (t *exclusive) leave(alone bool) { t.turns.Release(weight(alone)) }
