package model_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/sim/model"
)

// What follows is about trouble, which no script can make a real broker show on demand. Package broker's tests show
// that real ones do the same under a real alarm and behind a cut link.

func open(t *testing.T, b *model.Broker, name string) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, err := b.Dial(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := amqp.Open(conn, amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{}}, Heartbeat: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := c.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, ch
}

func declare(t *testing.T, ch *amqp.Channel) {
	t.Helper()
	if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, ch *amqp.Channel, id string) *amqp.DeferredConfirmation {
	t.Helper()
	c, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{MessageId: id})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAlarmBlocksPublishers: a connection that publishes during an alarm is notified, and not read any more; one that only
// consumes goes on. When the alarm is over the message is taken.
func TestAlarmBlocksPublishers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := model.New(model.Options{})
		from, out := open(t, b, "publish")
		defer func() { _ = from.Close() }()
		to, in := open(t, b, "consume")
		defer func() { _ = to.Close() }()
		declare(t, in)
		b.Publish("", "q", model.Properties{MessageID: "before"}, nil)
		blocked := from.NotifyBlocked(make(chan amqp.Blocking, 2))
		b.Alarm(true)
		confirm := publish(t, out, "during")
		if s := <-blocked; !s.Active {
			t.Error("got connection.unblocked")
		}
		d, ok, err := in.Get("q", false)
		if err != nil || !ok || d.MessageId != "before" {
			t.Errorf("the consumer got %q, %t, %v", d.MessageId, ok, err)
		}
		time.Sleep(5 * time.Minute) // no heartbeat is missed meanwhile
		if ready, _ := b.Count("q"); ready != 0 {
			t.Error("the message was taken during the alarm")
		}
		b.Alarm(false)
		if s := <-blocked; s.Active || !confirm.Wait() {
			t.Error("not unblocked, or not confirmed")
		}
	})
}

// TestFreezeIsNoticedByBothEnds, each by its own heartbeat; what was unacked is ready again when the broker has.
func TestFreezeIsNoticedByBothEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := model.New(model.Options{Hook: func(s model.Step) model.Effect {
			if s.Publish() && !s.After {
				return model.Freeze
			}
			return model.None
		}})
		c, ch := open(t, b, "frozen")
		declare(t, ch)
		b.Publish("", "q", model.Properties{MessageID: "a"}, nil)
		if _, ok, err := ch.Get("q", false); err != nil || !ok {
			t.Fatalf("get: %t, %v", ok, err)
		}
		closed := c.NotifyClose(make(chan *amqp.Error, 1))
		publish(t, ch, "b")
		if err := <-closed; err == nil {
			t.Error("closed without an error")
		}
		time.Sleep(time.Minute)
		if n := len(b.Connections()); n != 0 {
			t.Errorf("%d connections are open", n)
		}
		if ready, unacked := b.Count("q"); unacked != 0 || ready != 2 {
			t.Errorf("%d ready, %d unacked", ready, unacked)
		}
	})
}

// TestStop: clients cannot connect, and unacked messages are delivered again, with the first tag.
func TestStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := model.New(model.Options{})
		c, ch := open(t, b, "one")
		declare(t, ch)
		b.Publish("", "q", model.Properties{MessageID: "a"}, nil)
		_, _, _ = ch.Get("q", false)
		closed := c.NotifyClose(make(chan *amqp.Error, 1))
		b.Stop()
		if err := <-closed; err == nil {
			t.Error("closed without an error")
		}
		if _, err := b.Dial(context.Background(), "two"); err == nil {
			t.Error("connected to a broker that is down")
		}
		b.Start()
		c, ch = open(t, b, "two")
		defer func() { _ = c.Close() }()
		d, _, err := ch.Get("q", false)
		if err != nil || d.MessageId != "a" || !d.Redelivered || d.DeliveryTag != 1 {
			t.Errorf("got %q, redelivered %t, tag %d, %v", d.MessageId, d.Redelivered, d.DeliveryTag, err)
		}
	})
}

// TestWithheldAndNacked: a publish that is never confirmed is in its queue, one that is refused is not.
func TestWithheldAndNacked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		effects := []model.Effect{model.Withhold, model.Nack, model.None}
		b := model.New(model.Options{Hook: func(s model.Step) model.Effect {
			if !s.Publish() || s.After {
				return model.None
			}
			e := effects[0]
			effects = effects[1:]
			return e
		}})
		c, ch := open(t, b, "publish")
		defer func() { _ = c.Close() }()
		declare(t, ch)
		withheld, nacked, taken := publish(t, ch, "a"), publish(t, ch, "b"), publish(t, ch, "c")
		if nacked.Wait() || !taken.Wait() {
			t.Error("the nack or the ack did not arrive")
		}
		select {
		case <-withheld.Done():
			t.Error("the confirm arrived")
		default:
		}
		if ready, _ := b.Count("q"); ready != 2 {
			t.Errorf("%d ready, want 2", ready)
		}
	})
}
