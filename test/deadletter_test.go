package test

import (
	"context"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// mover moves parked messages back as a careful tool does: take unacked, publish mandatory, wait for the confirm, ack.
// It has a connection of its own, which can be cut at any point.
type mover struct {
	t   testing.TB
	ch  *amqp.Channel
	raw net.Conn
}

func newMover(t testing.TB) *mover {
	t.Helper()
	m := &mover{t: t}
	dial := amqp.DefaultDial(15 * time.Second)
	conn, err := amqp.DialConfig(brokertest.URL(t), amqp.Config{Dial: func(network, addr string) (_ net.Conn, err error) {
		m.raw, err = dial(network, addr)
		return m.raw, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.die)
	if m.ch, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if err := m.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return m
}

// die cuts the connection, as a killed process does.
func (m *mover) die() { _ = m.raw.Close() }

func (m *mover) take(queue string) amqp.Delivery {
	m.t.Helper()
	var d amqp.Delivery
	eventually(m.t, "a parked message", func() (ok bool) {
		var err error
		if d, ok, err = m.ch.Get(queue, false); err != nil {
			m.t.Fatal(err)
		}
		return ok
	})
	return d
}

func (m *mover) publish(queue string, d *amqp.Delivery) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	c, err := m.ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{
		MessageId: d.MessageId, Headers: d.Headers, Body: d.Body, DeliveryMode: amqp.Persistent,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if ok, err := c.WaitContext(ctx); !ok || err != nil {
		m.t.Fatalf("confirmed %v, %v", ok, err)
	}
}

// TestMoverKilledInEveryGap: a tool that moves parked messages back in the safe order may die at any point. The message
// is then in the dead-letter queue as before, or there and on its way, never nowhere; and each copy is tried once, not
// for ever.
func TestMoverKilledInEveryGap(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "1", "QUEUE_TYPE", queueType)
			sc.app.on("bad", status(500))
			s := sc.run()
			sc.send("bad")
			parked := func(copies, receipts int) {
				t.Helper()
				eventually(t, "all copies parked", func() bool { return sc.ready(sc.dlq()) == copies })
				if n := len(sc.app.seen("bad")); n != receipts {
					t.Errorf("%d receipts, want %d", n, receipts)
				}
			}
			parked(1, 2)

			m := newMover(t)
			m.take(sc.dlq())
			m.die()
			parked(1, 2)

			m = newMover(t)
			d := m.take(sc.dlq())
			m.publish(sc.queue(), &d)
			m.die()
			parked(2, 3)

			// Moving all that was there at the start ends, although each returns.
			m = newMover(t)
			for range 2 {
				d := m.take(sc.dlq())
				m.publish(sc.queue(), &d)
				if err := d.Ack(false); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.ch.Close(); err != nil { // the acks are with the broker then
				t.Fatal(err)
			}
			eventually(t, "one more try each", func() bool { return len(sc.app.seen("bad")) == 5 })
			parked(2, 5)
			sc.settledAll(s, 2)
		})
	}
}
