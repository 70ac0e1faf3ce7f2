// Command relay is compared with the sidecar's outbox. It is the loop that people write by hand: select a hundred rows,
// publish each and wait for its confirm, mark them, commit. It must stay honest: if you can make it faster within its
// rules, do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	batch = "100"
	pause = 100 * time.Millisecond // when there is nothing to do
)

func main() {
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
	r := &relay{db: db, ch: ch, exchange: os.Getenv("EXCHANGE")}
	for {
		n, err := r.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

type relay struct {
	db       *pgconn.PgConn
	ch       *amqp.Channel
	exchange string
}

// round is one transaction. It returns how many rows it published.
func (r *relay) round(ctx context.Context) (int, error) {
	if _, err := r.db.Exec(ctx, "BEGIN").ReadAll(); err != nil {
		return 0, err
	}
	claimed := r.db.ExecParams(ctx, `SELECT id, message_id, routing_key, body FROM outbox
		WHERE sent_at IS NULL AND quarantined_at IS NULL AND send_after <= now()
		ORDER BY send_after, id LIMIT `+batch+` FOR UPDATE SKIP LOCKED`, nil, nil, nil, []int16{0, 0, 0, 1}).Read()
	if claimed.Err != nil {
		return 0, claimed.Err
	}
	var ids []string
	for _, row := range claimed.Rows {
		confirm, err := r.ch.PublishWithDeferredConfirm(r.exchange, string(row[2]), true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, ContentType: "application/octet-stream", MessageId: string(row[1]), Body: row[3],
		})
		if err != nil {
			return 0, err
		}
		if ok, err := confirm.WaitContext(ctx); err != nil {
			return 0, err
		} else if !ok {
			return 0, errors.New("a message was not confirmed")
		}
		ids = append(ids, string(row[0]))
	}
	if len(ids) > 0 {
		marked := r.db.ExecParams(ctx, `UPDATE outbox SET sent_at = now() WHERE id = ANY($1::bigint[])`,
			[][]byte{[]byte("{" + strings.Join(ids, ",") + "}")}, nil, nil, nil).Read()
		if marked.Err != nil {
			return 0, marked.Err
		}
	}
	_, err := r.db.Exec(ctx, "COMMIT").ReadAll()
	return len(ids), err
}
