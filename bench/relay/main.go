// Command relay is compared with the sidecar's outbox. It is the loop that a good engineer writes by hand for one
// table and one exchange: one transaction claims 500 rows (SKIP LOCKED), publishes all of them and waits once for all
// confirms, marks the confirmed rows by one UPDATE and commits. BEGIN and the claim are one round trip, UPDATE and
// COMMIT another; statements are prepared, and ids and bodies are read as bytes. Messages are persistent, mandatory
// and have ids; a row that was returned or nacked is not marked. It runs on one core as the sidecar does, which saves
// it a quarter of its CPU time. It has no headers, no order of keys, no quarantine, no reconnect, no metrics. It must
// stay the best of its kind: if you can make it faster within its rules, do.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	batch = 500
	pause = 100 * time.Millisecond // when there is nothing to do

	claimSQL = `SELECT id, message_id, routing_key, body FROM outbox
		WHERE sent_at IS NULL AND quarantined_at IS NULL AND send_after <= now()
		ORDER BY send_after, id LIMIT $1::int FOR NO KEY UPDATE SKIP LOCKED`
	markSQL = `UPDATE outbox SET sent_at = now() WHERE id = ANY($1::bigint[])`
)

func main() {
	runtime.GOMAXPROCS(1)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	db, err := pgconn.Connect(ctx, os.Getenv("POSTGRES_DSN"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.Background()) }()
	// A planner without statistics would sort the whole table for each claim.
	if _, err := db.Exec(ctx, "SET enable_seqscan = off; SET enable_bitmapscan = off").ReadAll(); err != nil {
		return err
	}
	for name, sql := range map[string]string{"begin": "BEGIN", "claim": claimSQL, "mark": markSQL, "commit": "COMMIT"} {
		if _, err := db.Prepare(ctx, name, sql, nil); err != nil {
			return err
		}
	}
	r := &relay{
		db: db, ch: ch, exchange: os.Getenv("EXCHANGE"),
		returns: ch.NotifyReturn(make(chan amqp.Return, batch)), // the library sends while a batch is published
	}
	for ctx.Err() == nil {
		n, err := r.round(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if n > 0 {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

type relay struct {
	db       *pgconn.PgConn
	ch       *amqp.Channel
	exchange string
	returns  chan amqp.Return
	rows     []row
}

// row is one that is under way.
type row struct {
	id        [8]byte
	messageID string
	confirm   *amqp.DeferredConfirmation
}

// round is one transaction. It returns how many rows it marked as sent.
func (r *relay) round(ctx context.Context) (int, error) {
	if err := r.publish(ctx); err != nil {
		return 0, err
	}
	confirmed := 0
	for i := range r.rows {
		acked, err := r.rows[i].confirm.WaitContext(ctx)
		if err != nil {
			return 0, err
		}
		if !acked {
			r.rows[i].messageID = ""
		}
	}
	r.dropReturned()
	marks := binary.BigEndian.AppendUint32(nil, 1) // the binary form of a bigint[]: dimensions, nulls, type, length, from
	for _, v := range []uint32{0, 20, 0, 1} {
		marks = binary.BigEndian.AppendUint32(marks, v)
	}
	for i := range r.rows {
		if x := &r.rows[i]; x.messageID != "" {
			marks = append(binary.BigEndian.AppendUint32(marks, 8), x.id[:]...)
			confirmed++
		}
	}
	binary.BigEndian.PutUint32(marks[12:], uint32(confirmed)) //nolint:gosec // 500 at most
	p := r.db.StartPipeline(ctx)
	if confirmed > 0 {
		p.SendQueryPrepared("mark", [][]byte{marks}, []int16{1}, nil)
	}
	p.SendQueryPrepared("commit", nil, nil, nil)
	return confirmed, finish(p, nil)
}

// publish claims rows and publishes each as it is read.
func (r *relay) publish(ctx context.Context) error {
	r.rows = r.rows[:0]
	p := r.db.StartPipeline(ctx)
	p.SendQueryPrepared("begin", nil, nil, nil)
	p.SendQueryPrepared("claim", [][]byte{fmt.Append(nil, batch)}, nil, []int16{1, 0, 0, 1})
	return finish(p, func(v [][]byte) error {
		x := row{id: [8]byte(v[0]), messageID: string(v[1])}
		var err error
		// The library has written the body when it returns.
		x.confirm, err = r.ch.PublishWithDeferredConfirm(r.exchange, string(v[2]), true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, ContentType: "application/octet-stream", MessageId: x.messageID, Body: v[3],
		})
		r.rows = append(r.rows, x)
		return err
	})
}

// dropReturned lets rows unmarked that were returned. Their returns came before their confirms.
func (r *relay) dropReturned() {
	for len(r.returns) > 0 {
		back := <-r.returns
		for i := range r.rows {
			if r.rows[i].messageID == back.MessageId {
				r.rows[i].messageID = ""
			}
		}
	}
}

// finish reads all results of the pipeline.
func finish(p *pgconn.Pipeline, each func(values [][]byte) error) (err error) {
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Sync(); err != nil {
		return err
	}
	for {
		results, err := p.GetResults()
		if err != nil {
			return err
		}
		rows, ok := results.(*pgconn.ResultReader)
		if !ok {
			return nil
		}
		for each != nil && rows.NextRow() {
			if err := each(rows.Values()); err != nil {
				return err
			}
		}
		if _, err := rows.Close(); err != nil {
			return err
		}
	}
}
