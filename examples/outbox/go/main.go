// Command orders writes orders and their messages in one transaction. The sidecar sends the messages of committed
// transactions.
//
//	usage: DATABASE_URL=postgres://… go run . [TRACKING-IDS]
//
// TRACKING-IDS is a JSON list.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

// message is one that is to be published. OrderingKey and TrackingIDs may be left out.
type message struct {
	RoutingKey  string
	Body        any    // sent as JSON
	OrderingKey string // messages of one key are sent one after the other, in the order of their inserts
	TrackingIDs []byte // the header Amqp-Header-x-outbox-tracking-ids of the request that is being answered, a JSON list
}

// emit adds m to the transaction and returns its id. It is sent when tx commits: take no connection or pool instead.
func emit(ctx context.Context, tx pgx.Tx, m message) (id string, err error) {
	body, err := json.Marshal(m.Body)
	if err != nil {
		return "", err
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO outbox (routing_key, body, properties, ordering_key, tracking_ids)
		VALUES ($1, $2, '{"content_type": "application/json"}', nullif($3, ''), $4) RETURNING message_id::text`,
		m.RoutingKey, body, m.OrderingKey, m.TrackingIDs).Scan(&id)
	return id, err
}

type order struct {
	ID       int64  `json:"order"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`

	trackingIDs []byte
	message     string
}

var errRefused = errors.New("too much")

// place writes an order and its message. Neither is there until tx is committed.
func place(ctx context.Context, tx pgx.Tx, o *order) error {
	err := tx.QueryRow(ctx, `INSERT INTO orders (customer, cents) VALUES ($1, $2) RETURNING id`, o.Customer,
		o.Cents).Scan(&o.ID)
	if err != nil {
		return err
	}
	o.message, err = emit(ctx, tx, message{RoutingKey: "order.placed", Body: o, OrderingKey: o.Customer,
		TrackingIDs: o.trackingIDs})
	if err == nil && o.Cents > 1_000_000 {
		err = fmt.Errorf("order %d: message %s (%d cents are %w)", o.ID, o.message, o.Cents, errRefused)
	}
	return err
}

// placeOrders places several orders, all or none.
func placeOrders(ctx context.Context, db *pgx.Conn, orders []*order) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, o := range orders {
			if err := place(ctx, tx, o); err != nil {
				return err
			}
		}
		return nil
	})
}

func run(ctx context.Context, trackingIDs []byte) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(ctx) }()

	for _, orders := range [][]*order{
		{{Customer: "ada", Cents: 4200, trackingIDs: trackingIDs}},
		{{Customer: "bob", Cents: 9_999_999}},
		{{Customer: "cleo", Cents: 100}, {Customer: "dan", Cents: 200}, {Customer: "eve", Cents: 300}},
	} {
		err := placeOrders(ctx, db, orders)
		if errors.Is(err, errRefused) {
			fmt.Println("rolled back", err)
			continue
		}
		if err != nil {
			return err
		}
		for _, o := range orders {
			fmt.Printf("committed   order %d: message %s\n", o.ID, o.message)
		}
	}
	return nil
}

func main() {
	var trackingIDs []byte
	if len(os.Args) > 1 {
		trackingIDs = []byte(os.Args[1])
	}
	if err := run(context.Background(), trackingIDs); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}
