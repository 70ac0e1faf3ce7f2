package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// TestTry: the broker says what it would not take, and nothing is published.
func TestTry(t *testing.T) {
	t.Parallel()
	base := brokertest.URL(t)
	queue := brokertest.Queue(t, base, brokertest.Name(t, "q"), nil)
	c := pipe(t, publisher(t, options(base)))
	defer c.Close()
	msg := numbered(queue, 1)
	if err := c.Try(t.Context(), msg); err != nil {
		t.Error(err)
	}
	missing := *msg
	missing.Exchange = "there.is.none"
	if err := c.Try(t.Context(), &missing); !errors.Is(err, ErrUnroutable) || errors.Is(err, ErrInvalid) {
		t.Errorf("a missing exchange: %v", err)
	}
	forged := *msg
	forged.Msg.UserId = "somebody-else"
	if err := c.Try(t.Context(), &forged); !errors.Is(err, ErrInvalid) {
		t.Errorf("another user's id: %v", err)
	}
	odd := *msg
	odd.Msg.Expiration = "soon"
	if err := c.Try(t.Context(), &odd); !errors.Is(err, ErrInvalid) {
		t.Errorf("an expiration that is none: %v", err)
	}
	if n := brokertest.Ready(t, base, queue); n != 0 {
		t.Errorf("%d messages published", n)
	}
	c.session.Kill()
	<-c.session.Done()
	if err := c.Try(t.Context(), msg); !errors.Is(err, ErrDisconnected) && err == nil {
		t.Errorf("without a connection: %v", err)
	}
}

// TestTryWithoutTheRight: a missing right would meet every message.
func TestTryWithoutTheRight(t *testing.T) {
	t.Parallel()
	const password = "a-password-for-one-test"
	name := brokertest.User(t, password)
	brokertest.Ctl(t, "set_permissions", name, "", "", ".*")
	c := pipe(t, publisher(t, options(brokertest.URLAs(t, name, password))))
	defer c.Close()
	for range 2 { // the pipe is still good
		_, err := c.Send(t.Context(), numbered("anything", 1))
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Code != amqp.AccessRefused || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	}
}

// TestPipeTriesLargeMessages: one that the broker does not take is told, and costs no other one its confirm.
func TestPipeTriesLargeMessages(t *testing.T) {
	t.Parallel()
	brokertest.OwnNode(t).MaxSize(50_000)
	base := brokertest.URL(t)
	queue := brokertest.Queue(t, base, brokertest.Name(t, "q"), nil)
	c := pipe(t, publisher(t, options(base)))
	defer c.Close()
	var receipts []*Receipt
	for i := range 60 {
		msg := numbered(queue, i)
		msg.Msg.Body = []byte(strings.Repeat("x", 10+i*1000))
		r, err := c.Send(t.Context(), msg)
		if i <= 49 {
			if err != nil {
				t.Fatal(i, err)
			}
			receipts = append(receipts, r)
		} else if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "max size 50000") {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, r := range receipts {
		if err := r.Wait(within(t, 30*time.Second)); err != nil {
			t.Error(err)
		}
	}
	brokertest.WaitReady(t, base, queue, len(receipts))
}
