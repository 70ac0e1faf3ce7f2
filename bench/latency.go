package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"
)

// The low rate of the outbox.
const (
	rowsPerSecond = 50
	rowSeconds    = 20
)

// latencies are those of one run, half of it by each way, and what the low rate costs.
type latencies struct {
	Direct   spreadMS `json:"direct"`       // from the call that publishes to the arrival
	Outbox   spreadMS `json:"outbox"`       // from the commit, before it is sent, to the arrival
	CPU      float64  `json:"cpu_share"`    // of a core: the sidecar's
	Database float64  `json:"db_cpu_share"` // of a core
	Rows     int      `json:"rows"`
}

type spreadMS struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// latency: 50 rows a second, each committed by itself, and as many messages published directly in between.
func (b *bench) latency() error {
	return b.rounds(min(b.o.runs, fewRounds), func() error {
		l, err := b.latencyRun(b.size(rowsPerSecond * rowSeconds))
		if err != nil {
			return err
		}
		b.say("  direct p50 %.2f ms, p99 %.2f ms   outbox p50 %.2f ms, p99 %.2f ms   CPU %.1f %%, database %.1f %% of a core",
			l.Direct.P50, l.Direct.P99, l.Outbox.P50, l.Outbox.P99, 100*l.CPU, 100*l.Database)
		b.produced.Latency = append(b.produced.Latency, *l)
		return nil
	})
}

func (b *bench) latencyRun(n int) (_ *latencies, err error) {
	if err := errors.Join(b.purgeSent(), b.db.empty()); err != nil {
		return nil, err
	}
	c := b.sidecar
	c.env = append(b.relayEnv(c), c.env...)
	p, err := b.launch(c, 50)
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopErr := p.stop(); stopErr != nil || err != nil {
			err = errors.Join(err, stopErr, errors.New(p.tail()))
		}
	}()
	if err := b.relays(1); err != nil {
		return nil, err
	}
	conn, err := amqp.Dial(b.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	deliveries, err := consumeSent(conn)
	if err != nil {
		return nil, err
	}
	before, err := b.spending(nil, p)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	arrived := arrivals{at: make([]time.Time, 2*n)}
	var sent []time.Time
	var both errgroup.Group
	both.Go(func() error { return arrived.take(deliveries) })
	both.Go(func() error {
		var err error
		if sent, err = b.alternate(2 * n); err != nil {
			_ = conn.Close()
		}
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	took := time.Since(begin).Seconds()
	after, err := b.spending(nil, p)
	spent := after.minus(before)
	out := &latencies{Rows: n, CPU: spent.candidates / took, Database: spent.database / took}
	out.Outbox, out.Direct = arrived.since(sent, 0), arrived.since(sent, 1)
	return out, err
}

func consumeSent(conn *amqp.Connection) (<-chan amqp.Delivery, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	return ch.Consume(sentQueue, "latency", true, true, false, false, nil)
}

// alternate commits a row, publishes a message, and so on. Each has its time, also when one before it failed. It
// returns when each was sent.
func (b *bench) alternate(n int) ([]time.Time, error) {
	db, err := pgconn.Connect(b.ctx, b.db.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(b.ctx) }()
	sent := make([]time.Time, n)
	begin := time.Now()
	for i := range n {
		if err := b.pause(time.Until(begin.Add(time.Duration(i) * time.Second / (2 * rowsPerSecond)))); err != nil {
			return nil, err
		}
		body := strconv.Itoa(i) + " " + strings.Repeat("x", 1000)
		if i%2 == 1 {
			sent[i] = time.Now()
			confirm, err := b.ch.PublishWithDeferredConfirm(sentQueue, sentQueue, true, false,
				amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
			if err != nil {
				return nil, err
			}
			if ok, err := confirm.WaitContext(b.ctx); err != nil || !ok {
				return nil, errors.Join(errors.New("a message was not confirmed"), err)
			}
			continue
		}
		if _, err := db.Exec(b.ctx, "BEGIN").ReadAll(); err != nil {
			return nil, err
		}
		if err := db.ExecParams(b.ctx, "INSERT INTO outbox (routing_key, body) VALUES ($1, $2)",
			[][]byte{[]byte(sentQueue), []byte(body)},
			nil, []int16{0, 1}, nil).Read().Err; err != nil {
			return nil, err
		}
		sent[i] = time.Now()
		if _, err := db.Exec(b.ctx, "COMMIT").ReadAll(); err != nil {
			return nil, err
		}
	}
	return sent, nil
}

// arrivals are when each message came.
type arrivals struct{ at []time.Time }

// take returns when all have come.
func (a *arrivals) take(deliveries <-chan amqp.Delivery) error {
	for left := len(a.at); left > 0; left-- {
		d, ok := <-deliveries
		now := time.Now()
		if !ok {
			return fmt.Errorf("the broker ended the consumer, %d messages are missing", left)
		}
		number, _, _ := strings.Cut(string(d.Body[:min(20, len(d.Body))]), " ")
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= len(a.at) || !a.at[i].IsZero() {
			return fmt.Errorf("message %q was not sent, or came twice", number)
		}
		a.at[i] = now
	}
	return nil
}

// since is how long every second message took, from the given one on.
func (a *arrivals) since(sent []time.Time, first int) spreadMS {
	var ns []int64
	for i := first; i < len(sent); i += 2 {
		ns = append(ns, int64(a.at[i].Sub(sent[i])))
	}
	ms := milliseconds(ns)
	slices.Sort(ms)
	return spreadMS{quantile(ms, 0.5), quantile(ms, 0.99)}
}
