package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// row is one claimed row.
type row struct {
	id      string
	key     string
	keyed   bool
	keySize int      // of its ordering key, in bytes; the key itself is not there when that is more than maxKey
	due     string   // its send_after
	above   bool     // it is not below the low-water mark
	rank    int      // of the claimed rows with its key, how many are before it
	first   *row     // of them; itself if it has no key
	state   keyState // of the key, in its first row
	blocked bool
	until   string // when the row that blocks it is due, if that is later; "" = another relay has it

	size, others int   // bytes of the body and of the columns in fetched: at most so many are fetched
	exact        bool  // the sizes are those of the texts
	memory       int64 // bytes of memory that it holds
	away         bool  // it is, or was, on its way to the broker

	alone   bool // published outside the stream
	body    []byte
	pub     message.Publication
	receipt *broker.Receipt // of one in the stream
	span    telemetry.Span
	result  result
	err     error

	quarantined bool
	markErr     error // why it could not be marked
}

// result is the outcome of a row.
type result uint8

const (
	untouched result = iota // it was not published; the next batch has it
	sent
	failed  // for a reason of its own
	nacked  // the broker did not want it now
	unknown // it may have been published

	// In place of the outcome in the metric's label.
	quarantined // failed for the last time
	unmarked    // the outcome could not be written
)

// String is the value of the metric's label, and of the span's attribute.
func (r result) String() string {
	return [...]string{"untouched", "sent", "failed", "nacked", "unknown", "quarantined", "unmarked"}[r]
}

// batch is what one transaction has come to.
type batch struct {
	rows     []row  // claimed
	order    []*row // those that may be published, in the order of publishing
	full     bool   // there may be more rows
	front    bool   // it was a full scan
	keysHeld bool   // rows of some keys wait for rows that another relay has
	moved    bool   // a row was sent or marked: the next claim starts at another row
	trouble  error  // why rows were not published that may be
}

// hasMore reports whether the next claim may find rows at once.
func (b *batch) hasMore() bool { return b.full && (b.moved || b.keysHeld) || b.moved && b.keysHeld }

// runBatch claims rows, publishes them and marks what was confirmed, in one transaction.
func (s *session) runBatch(ctx context.Context) (*batch, error) {
	b := &batch{rows: s.rows[:0]}
	if err := s.claim(ctx, b); err != nil {
		return nil, err
	}
	s.rows = b.rows
	defer clear(b.rows) // their memory is used again
	start := time.Now()
	for _, step := range []func(context.Context, *batch) error{s.arrange, s.publish, s.mark} {
		if err := step(ctx, b); err != nil {
			return nil, err
		}
	}
	if s.table.hasLowWater() {
		s.lowWater.advance(b)
	}
	if len(b.rows) > 0 {
		s.r.metrics.duration.Observe(time.Since(start).Seconds())
	}
	return b, nil
}

// left reports whether the row is unchanged: another batch has to publish it.
func (x *row) left() bool {
	return x.until == "" && (x.result == untouched || x.result == unknown)
}

// claim begins the transaction and locks rows.
func (s *session) claim(ctx context.Context, b *batch) error {
	start, l := time.Now(), &s.lowWater
	stmt, held := stmtClaim, s.keysLeftOut(start)
	if b.front = l.fullScanDue(start); !b.front {
		stmt = stmtClaimOn
	} else if start.Sub(l.allKeysAt) > allKeysInterval {
		held, l.allKeysAt = nil, start
	}
	excluded, _ := s.r.markFailures.excluded(start)
	var due, id []byte
	if l.sendAfter != "" {
		due, id = []byte(l.sendAfter), []byte(l.id)
	}
	exact, limit := s.table.exact(colBody), s.r.o.Memory.Limit()
	err := s.execute(ctx, func(values [][]byte) error {
		x := row{id: string(values[0]), key: string(values[1]), keyed: values[1] != nil, due: string(values[5]),
			above: string(values[6]) == "t"}
		for i, size := range []*int{&x.keySize, &x.size, &x.others} {
			n, err := strconv.Atoi(string(values[2+i]))
			if err != nil {
				return err
			}
			*size = n
		}
		x.guess(exact, limit)
		b.rows = append(b.rows, x)
		return nil
	}, call{name: stmtBegin}, call{name: stmt, params: [][]byte{
		number(s.r.o.Batch), texts(held), due, id, texts(excluded),
	}})
	if err != nil {
		return fmt.Errorf("claim rows: %w", err)
	}
	if b.front {
		l.fullScanDone(start, time.Now())
	}
	b.full = len(b.rows) == s.r.o.Batch
	return nil
}

// arrange puts the rows that may be published into their order: the first of each key, then the second of each, so that
// waiting for the confirm of one leaves others to be published.
func (s *session) arrange(ctx context.Context, b *batch) error {
	var keyed []*row
	b.order = make([]*row, len(b.rows))
	for i := range b.rows {
		x := &b.rows[i]
		b.order[i], x.first = x, x
		if x.keyed {
			keyed = append(keyed, x)
		}
	}
	if len(keyed) == 0 {
		return nil
	}
	if err := s.findBlocked(ctx, b, keyed); err != nil {
		return fmt.Errorf("find earlier rows: %w", err)
	}
	b.order = slices.DeleteFunc(b.order, func(x *row) bool { return x.blocked })
	slices.SortStableFunc(b.order, func(a, b *row) int { return a.rank - b.rank })
	return nil
}

// findBlocked finds the rows that have to wait for an earlier row of their key, and the rank of the others.
func (s *session) findBlocked(ctx context.Context, b *batch, keyed []*row) error {
	keys := array(keyed, func(x *row) string { return x.key })
	last := make(map[string]*row, len(keyed))
	_, sentUnmarked := s.r.markFailures.excluded(time.Now())
	return s.execute(ctx, func(v [][]byte) error {
		n, err := place(v[0], keyed)
		if err != nil {
			return err
		}
		x := keyed[n-1]
		if x.blocked = string(v[1]) == "t"; !x.blocked {
			if before := last[x.key]; before != nil {
				x.first, x.rank = before.first, before.rank+1
			}
			last[x.key] = x
			return nil
		}
		if x.until = string(v[2]); x.until == "" {
			b.keysHeld = true
			remember(s.heldKeys, x.key, heldTime)
		}
		return nil
	}, call{name: stmtOrder, params: [][]byte{ids(keyed), keys, texts(sentUnmarked)}})
}

// place reads a row's place in the list that a statement was given, from 1.
func place(text []byte, rows []*row) (int, error) {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > len(rows) {
		return 0, fmt.Errorf("row %q", text)
	}
	return n, nil
}

const (
	// heldTime is how long a key is left out whose first row another relay has: its rows must not fill every batch.
	heldTime = 200 * time.Millisecond
	// maxNames bounds how many keys, or exchanges, a session remembers: rows may name anything.
	maxNames = 1000
)

// keysLeftOut returns the keys that are held now.
func (s *session) keysLeftOut(now time.Time) []string {
	maps.DeleteFunc(s.heldKeys, func(_ string, until time.Time) bool { return now.After(until) })
	return slices.Collect(maps.Keys(s.heldKeys))
}

// remember notes a name for a while.
func remember(names map[string]time.Time, name string, d time.Duration) {
	if len(names) >= maxNames {
		clear(names)
	}
	names[name] = time.Now().Add(d)
}
