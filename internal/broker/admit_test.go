package broker

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// TestTry: the broker says what it would not take, and nothing is published.
func TestTry(t *testing.T) {
	t.Parallel()
	base := brokertest.URL(t)
	queue := queue(t)
	s := dial(t, options(t))
	msg := numbered(queue, 1)
	must.Do(t, s.Try(t.Context(), msg))
	for what, change := range map[string]func(*message.Publication){
		"a missing exchange":         func(p *message.Publication) { p.Exchange = "missing" },
		"another user's id":          func(p *message.Publication) { p.Msg.UserId = "another" },
		"an expiration of no number": func(p *message.Publication) { p.Msg.Expiration = "soon" },
	} {
		other := *msg
		change(&other)
		if err := s.Try(t.Context(), &other); err == nil || errors.Is(err, ErrInvalid) == (other.Exchange != "") || errors.Is(err, ErrUnroutable) != (other.Exchange != "") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := brokertest.Ready(t, base, queue); n != 0 {
		t.Errorf("%d messages published", n)
	}
	s.Kill()
	<-s.Done()
	wantErr(t, s.Try(t.Context(), msg), ErrDisconnected) // without a connection
}

// TestTryWithoutTheRight: a missing right would meet every message.
func TestTryWithoutTheRight(t *testing.T) {
	t.Parallel()
	const password = "a-password-for-one-test"
	name := brokertest.User(t, password)
	brokertest.Ctl(t, "set_permissions", name, "", "", ".*")
	c := newStream(t, publisher(t, options(t, brokertest.URLAs(t, name, password))))
	for range 2 { // the stream is still good
		_, err := c.Send(t.Context(), numbered("anything", 1))
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Code != amqp.AccessRefused || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	}
}
