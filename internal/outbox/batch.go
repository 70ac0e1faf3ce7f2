package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/telemetry"
)

// row is one claimed row.
type row struct {
	id      string
	key     string
	keyed   bool
	keySize int    // of its ordering key, in bytes; the key itself is not there when that is more than maxKey
	due     string // its send_after
	above   bool   // it is not below the low-water mark
	rank    int    // of the claimed rows with its key, how many are before it
	blocked bool
	until   string // when the row that blocks it is due, if that is later; "" = another relay has it

	size, others int   // bytes of the body and of the columns in fetched: at most so many are fetched
	exact        bool  // the sizes are those of the texts
	held         int64 // bytes of memory that it has taken
	again        bool  // it has to be fetched once more
	away         bool  // it is, or was, on its way to the broker

	attempts int
	exchange string
	alone    bool // published outside the stream
	body     []byte
	pub      broker.Publication
	span     telemetry.Span
	result   result
	err      error

	marked, quarantined bool
	lost                bool  // another relay locked it before it was marked
	unmarked            error // why it could not be marked
}

// result is the outcome of a row.
type result uint8

const (
	untouched result = iota // it was not published; the next batch has it
	sent
	failed  // for a reason of its own
	nacked  // the broker did not want it now
	unknown // it may have been published
)

// String is the value of the metric's label, and of the span's attribute.
func (r result) String() string {
	return [...]string{"untouched", "sent", "failed", "nacked", "unknown"}[r]
}

// batch is what one transaction has come to.
type batch struct {
	rows    []row  // claimed
	order   []*row // those that may be published, in the order of publishing
	full    bool   // there may be more rows
	front   bool   // it was a full scan
	held    bool   // rows of some keys wait for rows that another relay has
	moved   bool   // a row was sent or marked: the next claim starts at another row
	trouble error  // why outbox batch not published that may be
}

// runBatch claims rows, publishes them and marks what was confirmed, in one transaction.
func (s *session) runBatch(ctx context.Context) (*batch, error) {
	rd := &batch{rows: s.rows[:0]}
	if err := s.claim(ctx, rd); err != nil {
		return nil, err
	}
	s.rows = rd.rows
	defer s.forget(rd)
	start := time.Now()
	if len(rd.rows) > 0 {
		if err := s.arrange(ctx, rd); err != nil {
			return nil, err
		}
		if err := s.publish(ctx, rd); err != nil {
			return nil, err
		}
	}
	if err := s.mark(ctx, rd); err != nil {
		return nil, err
	}
	if s.table.hasLowWater() {
		s.lowWater.advance(rd)
	}
	rd.moved = slices.ContainsFunc(rd.rows, func(x row) bool { return !x.left() })
	if len(rd.rows) > 0 {
		s.r.metrics.duration.Observe(time.Since(start).Seconds())
	}
	return rd, nil
}

// left reports whether the row is unchanged: another batch has to publish it.
func (x *row) left() bool {
	return x.until == "" && (x.result == untouched || x.result == unknown)
}

// forget clears the rows, whose memory is used again.
func (s *session) forget(rd *batch) { clear(rd.rows) }

// bounded is the time that one statement may take, for the client: a little more than for the server.
func (s *session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.r.o.Database.timeout()+cmp.Or(s.r.o.Database.margin, defaultMargin), errSlow)
}

var errSlow = errors.New("the database does not answer")

// claim begins the transaction and locks rows.
func (s *session) claim(ctx context.Context, rd *batch) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	start := time.Now()
	stmt, held := stmtClaim, s.heldKeys()
	f := &s.lowWater
	if rd.front = f.fullScanDue(start); !rd.front {
		stmt = stmtClaimOn
	} else if start.Sub(f.fullHeldAt) > unheldInterval {
		held, f.fullHeldAt = nil, start
	}
	hidden, published := s.r.unmarked.held(start)
	s.published = published
	from := [2][]byte{}
	if f.sendAfter != "" {
		from = [2][]byte{[]byte(f.sendAfter), []byte(f.id)}
	}
	exact, limit := s.table.exact(colBody), s.r.o.Memory.Limit()
	p := s.conn.StartPipeline(ctx)
	p.SendQueryPrepared(stmtBegin, nil, nil, nil)
	p.SendQueryPrepared(stmt, [][]byte{
		strconv.AppendInt(nil, int64(s.r.o.Batch), 10),
		array(len(held), func(i int) (string, bool) { return held[i], false }), from[0], from[1], texts(hidden),
	}, nil, nil)
	err := pipelined(p, func(values [][]byte) error {
		x := row{id: string(values[0]), key: string(values[1]), keyed: values[1] != nil, due: string(values[5]),
			above: string(values[6]) == "t"}
		x.keySize, _ = strconv.Atoi(string(values[2])) // 0 for NULL
		size, err := strconv.Atoi(string(values[3]))
		if err != nil {
			return err
		}
		others, err := strconv.Atoi(string(values[4]))
		x.guess(size, others, exact, limit)
		rd.rows = append(rd.rows, x)
		return err
	})
	if err != nil {
		return fmt.Errorf("claim rows: %w", err)
	}
	if rd.front {
		f.fullScanDone(start, time.Now())
	}
	rd.full = len(rd.rows) == s.r.o.Batch
	return nil
}

// arrange puts the rows that may be published into their order: the first of each key, then the second of each, so that
// waiting for the confirm of one leaves others to be published.
func (s *session) arrange(ctx context.Context, rd *batch) error {
	keyed := slices.ContainsFunc(rd.rows, func(r row) bool { return r.keyed })
	if keyed {
		if err := s.findBlocked(ctx, rd); err != nil {
			return err
		}
	}
	rd.order = s.order[:0]
	for i := range rd.rows {
		if !rd.rows[i].blocked {
			rd.order = append(rd.order, &rd.rows[i])
		}
	}
	if keyed {
		slices.SortStableFunc(rd.order, func(a, b *row) int { return a.rank - b.rank })
	}
	s.order = rd.order
	return nil
}

// findBlocked finds the rows that have to wait for an earlier row of their key, and the rank of the others.
func (s *session) findBlocked(ctx context.Context, rd *batch) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var keyed []*row
	for i := range rd.rows {
		if rd.rows[i].keyed {
			keyed = append(keyed, &rd.rows[i])
		}
	}
	ids := array(len(keyed), func(i int) (string, bool) { return keyed[i].id, false })
	keys := array(len(keyed), func(i int) (string, bool) { return keyed[i].key, false })
	ranks := make(map[string]int, len(keyed))
	r := s.conn.ExecPrepared(ctx, stmtOrder, [][]byte{ids, keys, texts(s.published)}, nil, nil)
	for r.NextRow() {
		v := r.Values()
		n, err := strconv.Atoi(string(v[0]))
		if err != nil || n < 1 || n > len(keyed) {
			return fmt.Errorf("find earlier rows: row %q", v[0])
		}
		x := keyed[n-1]
		if x.blocked = string(v[1]) == "t"; !x.blocked {
			x.rank = ranks[x.key]
			ranks[x.key]++
			continue
		}
		if x.until = string(v[2]); x.until == "" {
			rd.held = true
			s.hold(x.key)
		}
	}
	if _, err := r.Close(); err != nil {
		return fmt.Errorf("find earlier rows: %w", err)
	}
	return nil
}

// Keys whose first row another relay has are left out for a while: their rows must not fill every batch.
const (
	maxHeld  = 1000
	heldTime = 200 * time.Millisecond
)

func (s *session) hold(key string) {
	if len(s.held) < maxHeld {
		s.held[key] = time.Now().Add(heldTime)
	}
}

func (s *session) heldKeys() []string {
	now := time.Now()
	var keys []string
	for key, until := range s.held {
		if now.After(until) {
			delete(s.held, key)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}
