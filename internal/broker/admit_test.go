package broker

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

func TestChannelThatOpensLateIsKept(t *testing.T) {
	t.Parallel()
	proxy, o := proxied(t)
	p, q := publisher(t, o), queue(t)
	proxy.Stall(brokertest.Down)
	wantErr(t, p.Publish(within(t, 100*time.Millisecond), parked(q, "")), ErrBusy)
	proxy.Restore(t)
	s := p.current()
	brokertest.Eventually(t, time.Minute, "an idle channel", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.idle) == 1
	})
	if err := p.Publish(within(t, time.Minute), parked(q, "")); err != nil || s.Err() != nil {
		t.Errorf("%v, session %v", err, s.Err())
	}
}

func TestSilenceWithoutAnAlarmEndsThePublishersSession(t *testing.T) {
	t.Parallel()
	proxy, o := proxied(t)
	o.Timeout = 3 * time.Second
	p, q := publisher(t, o), queue(t)
	s := p.current()
	proxy.Stall(brokertest.Down)
	wantErr(t, p.Publish(within(t, time.Minute), parked(q, "")), ErrDisconnected)
	ended(t, s.Done(), "the session")
	wantCause(t, s.Err(), causeTimeout, "")
	proxy.Restore(t)
	connected(t, p)
}

// Before the first answer no message waits longer than its own context, the session or the alarm allows.
func TestWaitingForTheFirstAnswer(t *testing.T) {
	t.Parallel()
	silent := func(t *testing.T) *Session {
		t.Helper()
		s := dial(t, options(t))
		s.probe.Do(func() {}) // nothing asks
		return s
	}
	pub := &message.Publication{}
	wantErr(t, silent(t).admit(within(t, 20*time.Millisecond), pub), ErrBusy) // its context ended
	for name, tt := range map[string]struct {
		happens func(*Session)
		want    error
	}{
		"the session ends": {func(s *Session) { s.Kill() }, ErrDisconnected},
		"the alarm begins": {func(s *Session) { s.setBlocked(true, "low on memory") }, ErrBlocked},
		"an answer comes":  {func(s *Session) { s.markAnswered() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := silent(t)
			result := make(chan error)
			go func() { result <- s.admit(within(t, time.Minute), pub) }()
			tt.happens(s)
			wantErr(t, <-result, tt.want)
			wantErr(t, s.admit(t.Context(), pub), tt.want) // and so does the next
		})
	}
}

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
