package deadletter

import (
	"context"
	"errors"
	"fmt"
)

// Browse calls visit for every matching message from the head of the queue on, foreign ones included, and requeues all
// of them in their order. The message is valid until visit returns; then it is done. An error of visit ends the read
// and is returned.
func (q *Queue) Browse(ctx context.Context, f Filter, s Scan, report Report, visit func(*Message) error) (Progress,
	error) {
	r, err := q.openRecycled(ctx)
	if err != nil {
		return Progress{}, err
	}
	if s.Depth > 0 {
		r.total = min(r.total, s.Depth)
	}
	if s.Limit > 0 && f.Empty() && !q.narrow {
		r.total = min(r.total, s.Limit)
	}
	o := q.operate(r, Selection{Filter: f, Limit: s.Limit})
	o.visit = visit
	return o.run(ctx, report)
}

// hides reports whether m is none of the messages of the one subscription that is asked for.
func (q *Queue) hides(m *Message) bool { return q.narrow && m.Foreign }

// findMore is the least number of messages that Find reads to count others with the same message id.
const findMore = 10_000

var errFound = errors.New("found")

// Find returns the first message with this message id or Ref, with at most maxBody bytes of its body. more is the
// number of other messages with that message id among the first ten thousand. The error is ErrNotFound when no message
// matches.
func (q *Queue) Find(ctx context.Context, id string, maxBody int) (found *Full, more int, err error) {
	_, err = q.Browse(ctx, Filter{}, Scan{}, nil, func(m *Message) error {
		switch {
		case found == nil && m.is(id):
			found = m.Full(maxBody)
			if m.MessageID != id { // a Ref: all others with it are copies
				return errFound
			}
		case found != nil && m.MessageID == id:
			more++
		}
		if found != nil && m.Position >= findMore {
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	if err == nil && found == nil {
		err = fmt.Errorf("%w: %.100q", ErrNotFound, id)
	}
	return found, more, err
}
