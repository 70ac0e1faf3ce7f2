package broker

import (
	"context"
	"fmt"
	"sync"
)

// firstPublish lets one message of a session go alone until the broker has answered a publish.
//
// During a resource alarm the broker stops reading from a connection in the middle of its first message, and takes that
// message when the alarm is over. Otherwise each reconnect during an alarm would leave as many messages behind as there
// are publishes under way, each to be published once more when the alarm ends.
type firstPublish struct {
	alone    chan struct{} // held by the message that goes alone
	once     sync.Once
	answered chan struct{} // closed when the broker has answered a publish
}

func newFirstPublish() firstPublish {
	return firstPublish{alone: make(chan struct{}, 1), answered: make(chan struct{})}
}

// publishAnswered lets every message go.
func (s *Session) publishAnswered() { s.first.once.Do(func() { close(s.first.answered) }) }

// enter waits until a message may be sent; an alarm refuses it at once. When alone is true the caller has to wait for
// the broker's answer and then call leaveAlone.
func (s *Session) enter(ctx context.Context) (alone bool, err error) {
	for {
		blocked, changed := s.watchBlocked()
		if blocked {
			return false, ErrBlocked
		}
		select {
		case <-s.first.answered:
			return false, nil
		default:
		}
		select {
		case <-s.first.answered:
			return false, nil
		case s.first.alone <- struct{}{}:
			if s.Blocked() { // the alarm ended the wait for the message before
				s.leaveAlone()
				return false, ErrBlocked
			}
			return true, nil
		case <-changed:
		case <-s.Done():
			return false, s.Err()
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
	}
}

func (s *Session) leaveAlone() { <-s.first.alone }
