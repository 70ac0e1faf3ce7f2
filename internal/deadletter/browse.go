package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Browse calls visit for every matching message from the head of the queue on, foreign ones included, and requeues all
// of them in their order. The message is valid until visit returns. An error of visit ends the read and is returned.
func (q *Queue) Browse(ctx context.Context, f Filter, s Scan, visit func(*Message) error) (Summary, error) {
	ctx, stop := withoutDeadline(ctx)
	defer stop()
	unlock, err := q.lock(ctx, true)
	if err != nil {
		return Summary{Queue: q.name}, err
	}
	defer unlock()
	return q.browse(ctx, f, s, func(int) {}, visit)
}

// browse is Browse under the lock. begun is called with the number of messages.
func (q *Queue) browse(ctx context.Context, f Filter, s Scan, begun func(total int),
	visit func(*Message) error) (sum Summary, err error) {
	sum.Queue = q.name
	w, err := q.openRecycled(ctx)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	sum.Total = w.ready
	begun(w.ready)
	w.bound(s, f.Empty())
	for (s.Limit == 0 || sum.Matched < s.Limit) && (s.Depth == 0 || sum.Scanned < s.Depth) {
		d, err := w.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sum, fmt.Errorf("read queue %q: %w", q.name, err)
		}
		sum.Scanned++
		m := q.read(d, sum.Scanned)
		if f.Match(&m) {
			sum.Matched++
			err = visit(&m)
		}
		w.keep(d)
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// bound keeps the reader from taking messages that will not be shown.
func (w *reader) bound(s Scan, all bool) {
	if s.Depth > 0 {
		w.total = min(w.total, s.Depth)
	}
	if s.Limit > 0 && all {
		w.total = min(w.total, s.Limit)
	}
}

// Groups counts what fails in the same way, the largest group first.
func (q *Queue) Groups(ctx context.Context, f Filter, s Scan) ([]Group, Summary, error) {
	var g grouping
	sum, err := q.Browse(ctx, f, s, func(m *Message) error {
		g.add(m)
		return nil
	})
	groups := make([]Group, len(g.all))
	for i, one := range g.all {
		groups[i] = *one
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(b.Count, a.Count) })
	return groups, sum, err
}

// findMore is the least number of messages that Find reads to count others with the same message id.
const findMore = 10_000

var errFound = errors.New("found")

// Find returns the first message with this message id or Ref, with at most maxBody bytes of its body. more is the
// number of other messages with that message id among the first ten thousand. The error is ErrNotFound when no message
// matches.
func (q *Queue) Find(ctx context.Context, id string, maxBody int) (found *Full, more int, err error) {
	_, err = q.Browse(ctx, Filter{}, Scan{}, func(m *Message) error {
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
