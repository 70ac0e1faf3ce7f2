package deadletter

import (
	"context"
	"errors"
	"io"
)

var errTODO = errors.New("TODO")

// Depth is what the broker says about the queue, without looking into it.
type Depth struct {
	Ready     int // messages nobody holds
	Consumers int // operations that run, or whatever else consumes the queue
}

// Depth asks the broker. It does not exclude anything else.
func (q *Queue) Depth(ctx context.Context) (Depth, error) { return Depth{}, errTODO }

// Browse calls visit for every matching message from the head of the queue on, foreign ones included, and puts all back
// in their places. The message is valid until visit returns. An error of visit ends the look and is returned.
func (q *Queue) Browse(ctx context.Context, f Filter, s Scan, visit func(*Message) error) (Summary, error) {
	return Summary{}, errTODO
}

// Groups counts what fails in the same way, the largest group first.
func (q *Queue) Groups(ctx context.Context, f Filter, s Scan) ([]Group, Summary, error) {
	return nil, Summary{}, errTODO
}

// Find returns the first message that id names, by its message id or Ref; it is a copy of its own. more is how many
// others have that message id. ErrNotFound when there is none.
func (q *Queue) Find(ctx context.Context, id string) (m *Message, more int, err error) {
	return nil, 0, errTODO
}

// Redrive publishes what r selects on the way back into the flow, and acks each when it is confirmed. What the last report
// said is returned with every error. It stops at the first failure that would meet the next message too; a message that
// cannot be published by itself is counted as failed and stays. When ctx ends, it finishes what is under way.
func (q *Queue) Redrive(ctx context.Context, r Redrive, report Report) (Progress, error) {
	return Progress{}, errTODO
}

// Discard deletes what s selects. dry: count, delete nothing.
func (q *Queue) Discard(ctx context.Context, s Selection, dry bool, report Report) (Progress, error) {
	return Progress{}, errTODO
}

// Export writes what s selects to w, one Record per line, and leaves it where it is.
func (q *Queue) Export(ctx context.Context, w io.Writer, s Selection, report Report) (Progress, error) {
	return Progress{}, errTODO
}

// Import parks every Record that r holds, in their order, after skipping so many lines. It stops at the first line that
// makes no sense (ErrInvalid) or cannot be parked, and names it: all before it are parked, none behind it.
func (q *Queue) Import(ctx context.Context, r io.Reader, skip int, report Report) (Progress, error) {
	return Progress{}, errTODO
}
