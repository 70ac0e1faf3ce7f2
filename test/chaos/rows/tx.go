package rows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/source"
)

// row is one as it is written.
type row struct {
	ID         string         `json:"id"`
	Exchange   *string        `json:"exchange"`
	RoutingKey string         `json:"routing_key"`
	Body       []byte         `json:"body"`
	Headers    map[string]any `json:"headers"`
	Properties map[string]any `json:"properties"`
	Key        *string        `json:"key"`
}

// Spent is how many attempts a row begins with, of the ten that it has: one that no broker takes is quarantined at
// once. The pause after an attempt doubles with their number up to five minutes: a second one would outlast the storm.
const Spent = 9

var insert = fmt.Sprintf(`INSERT INTO outbox (message_id, exchange, routing_key, body, headers, properties, ordering_key,
	attempts)
SELECT (r->>'id')::uuid, r->>'exchange', r->>'routing_key', decode(r->>'body', 'base64'),
	r->'headers', r->'properties', r->>'key', %d
FROM jsonb_array_elements($1::jsonb) r
RETURNING id, message_id`, Spent)

// tx is one transaction and its rows.
type tx struct {
	w       *worker
	conn    int // which connection of the worker
	number  int
	shape   shape
	values  []row
	records []*ledger.Written
	err     error // it is rolled back, because it got no further
}

// begin opens a transaction and writes its rows. While there is no database it tries again: nothing has happened yet.
func (w *worker) begin(ctx context.Context, conn int, s shape, from, to int) *tx {
	t := &tx{w: w, conn: conn, number: int(w.txs.Add(1)), shape: s}
	if err := t.rows(from, to); err != nil {
		panic(err)
	}
	for !t.open(ctx) {
		if ctx.Err() != nil {
			t.err = ctx.Err()
			return t
		}
		source.Pause(ctx, 100*time.Millisecond)
	}
	t.err = t.write()
	return t
}

// open begins the transaction on a connection that works.
func (t *tx) open(ctx context.Context) bool {
	c := &t.w.conns[t.conn]
	if *c == nil {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var err error
		if *c, err = pgconn.Connect(ctx, t.w.o.DSN); err != nil {
			*c = nil
			return false
		}
	}
	if _, err := t.exec("BEGIN"); err != nil {
		t.w.drop(t.conn)
		return false
	}
	return true
}

func (t *tx) write() error {
	values, err := json.Marshal(t.values)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result := t.w.conns[t.conn].ExecParams(ctx, insert, [][]byte{values}, nil, nil, nil).Read()
	if result.Err != nil {
		if refused, ok := errors.AsType[*pgconn.PgError](result.Err); ok && refused.Code[:2] == "42" {
			panic(result.Err) // the statement is wrong: no row would ever be written
		}
		return result.Err
	}
	rows := map[string]int64{}
	for _, r := range result.Rows {
		if rows[string(r[1])], err = strconv.ParseInt(string(r[0]), 10, 64); err != nil {
			return err
		}
	}
	for _, r := range t.records {
		r.Row = rows[r.ID]
	}
	return nil
}

// end finishes the transaction as its shape has it, and records the outcomes of its rows.
func (t *tx) end() {
	result := ledger.RolledBack
	switch {
	case t.err != nil, t.shape == abandon:
		t.w.drop(t.conn)
	case t.shape == rollback:
		t.finish("ROLLBACK")
	case t.shape == failing:
		if _, err := t.exec("SELECT 1 / 0"); err == nil {
			panic("a division by zero succeeds")
		}
		result = t.finish("COMMIT") // which rolls back, and says so
	default:
		result = t.finish("COMMIT")
	}
	done := ledger.Now()
	for _, r := range t.records {
		r.Result, r.Done = result, done
		if err := t.w.log.Write(r); err != nil {
			panic(fmt.Errorf("the ledger cannot be written: %w", err))
		}
	}
	t.w.gate.Done(len(t.records))
}

// finish ends the transaction. Without an answer it is unknown what it did.
func (t *tx) finish(statement string) ledger.Result {
	tag, err := t.exec(statement)
	switch {
	case err == nil && tag == "COMMIT":
		return ledger.Confirmed
	case err == nil:
		return ledger.RolledBack
	}
	t.w.drop(t.conn)
	if statement == "ROLLBACK" || t.shape == failing {
		return ledger.RolledBack
	}
	return ledger.Unknown
}

func (t *tx) exec(statement string) (tag string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	results, err := t.w.conns[t.conn].Exec(ctx, statement).ReadAll()
	if err == nil && len(results) > 0 {
		tag = results[len(results)-1].CommandTag.String()
	}
	return tag, err
}

// drop gives a connection up. A transaction that was open on it is rolled back.
func (w *worker) drop(n int) {
	if w.conns[n] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conns[n].Close(ctx)
	w.conns[n] = nil
}
