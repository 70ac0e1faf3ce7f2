// Package rows is the app of a chaos run that writes messages into its outbox, in a process of its own: in transactions
// of one row and of many, that are committed, rolled back, abandoned, held open for long, or committed in the reverse
// order of their rows. It writes down the outcome of each row. A commit without an answer stays unknown here.
package rows

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
	"sidecar/test/chaos/source"
)

const (
	workers = 8

	// patience bounds one statement. It is longer than the database may be suspended.
	patience = time.Minute

	// hugeHeader is more bytes than a frame may have: no broker takes such a message.
	hugeHeader = 200 << 10
)

// Options of a writer.
type Options struct {
	Dir      string
	DSN      string
	Lonely   string // an exchange without bindings: what is sent there cannot be routed
	Run      ledger.Run
	Canary   string
	Rate     int // rows per second
	Rollback int // how many of a thousand rows are rolled back
}

// shape is what happens to a transaction.
type shape string

const (
	commit   shape = "commit"
	ordered  shape = "ordered" // one row with the ordering key of its worker
	held     shape = "held"    // open for seconds
	reversed shape = "reversed"
	rollback shape = "rollback"
	failing  shape = "failing"   // a statement fails, and the app commits nevertheless
	abandon  shape = "abandoned" // the connection is closed instead of a commit
)

// draw chooses a shape and how many rows it has, of two transactions together when it is reversed.
func (o *Options) draw(r *rand.Rand) (shape, int) {
	n := 1
	switch k := r.IntN(10); {
	case k >= 9:
		n = 21 + r.IntN(80)
	case k >= 5:
		n = 2 + r.IntN(19)
	}
	if r.IntN(1000) < o.Rollback {
		return []shape{rollback, failing, abandon}[r.IntN(3)], n
	}
	switch k := r.IntN(200); {
	case k < 2:
		return held, n
	case k < 17:
		return reversed, n + 1
	case n == 1 && k < 100:
		return ordered, n
	}
	return commit, n
}

// writer is what all workers share.
type writer struct {
	o    Options
	log  *ledger.Writer
	gate *source.Gate
	txs  atomic.Int64
}

// Run writes rows until in ends; see source.Open.
func Run(o Options, in io.Reader, out io.Writer) error {
	log, err := ledger.Append(o.Dir, ledger.RowFile)
	if err != nil {
		return err
	}
	ctx, gate := source.Open(o.Run.Seed, o.Rate, in, out, log)
	w := &writer{o: o, log: log, gate: gate}
	var all sync.WaitGroup
	for n := range workers {
		all.Go(func() { (&worker{writer: w, name: fmt.Sprintf("worker %d", n)}).work(ctx) })
	}
	all.Wait()
	return log.Close()
}

// worker has its own connections: two, because transactions that commit in reverse order are open at the same time.
type worker struct {
	*writer
	name  string
	conns [2]*pgconn.PgConn
}

func (w *worker) work(ctx context.Context) {
	defer func() {
		for i := range w.conns {
			w.drop(i)
		}
	}()
	for {
		var s shape
		var pause time.Duration
		from, to, ok := w.gate.Take(ctx, func(r *rand.Rand) (n int) {
			s, n = w.o.draw(r)
			pause = time.Second + time.Duration(r.IntN(3000))*time.Millisecond
			return n
		})
		if !ok {
			return
		}
		switch {
		case s == reversed && to-from > 1:
			w.reverse(ctx, from, to)
		case s == held:
			t := w.begin(ctx, 0, s, from, to)
			source.Pause(ctx, pause)
			t.end()
		default:
			w.begin(ctx, 0, s, from, to).end()
		}
	}
}

// reverse writes the first rows in one transaction, the others in another that is committed while the first stays open.
// A relay that remembers how far it has come has passed the first by then.
func (w *worker) reverse(ctx context.Context, from, to int) {
	middle := (from + to) / 2
	first := w.begin(ctx, 0, reversed, from, middle)
	w.begin(ctx, 1, reversed, middle, to).end()
	source.Pause(ctx, 200*time.Millisecond)
	first.end()
}

// rows from to to as they are written.
func (t *tx) rows(from, to int) error {
	o := &t.w.o
	for n := from; n < to; n++ {
		what, body, err := source.Plan(plan.Outbox, o.Run.ID, o.Run.Seed, n, o.Run.Never, o.Canary)
		if err != nil {
			return err
		}
		seq := plan.Outbox.Seq(n)
		id := plan.ID(o.Run.ID, seq)
		headers := source.Headers(what, id)
		r := row{
			ID: id, Body: body, RoutingKey: "chaos", Headers: headers,
			Properties: map[string]any{"content_type": plan.ContentType, "correlation_id": id, "type": plan.Type},
		}
		w := &ledger.Written{
			Published: ledger.Published{Seq: seq, ID: id, Sum: plan.Sum(body), Plan: what.String(), Sent: ledger.Now()},
			Tx:        t.number, Shape: string(t.shape),
		}
		if t.shape == ordered {
			r.Key = &t.w.name
			w.Key = t.w.name
		} else if d := rand.New(rand.NewPCG(o.Run.Seed, uint64(seq)+1<<41)); d.IntN(500) == 0 {
			w.Poison = true
			if d.IntN(2) == 0 {
				r.Exchange = &o.Lonely
			} else {
				headers["huge"] = strings.Repeat("x", hugeHeader)
			}
		}
		t.values, t.records = append(t.values, r), append(t.records, w)
	}
	return nil
}
