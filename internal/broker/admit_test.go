package broker

import (
	"errors"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

func TestChannelThatOpensLateIsKept(t *testing.T) {
	t.Parallel()
	proxy, o := proxied(t)
	p, q := publisher(t, o), queue(t)
	proxy.Stall(brokertest.Down)
	if err := p.Publish(within(t, 100*time.Millisecond), parked(q, "")); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
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
	o.Timeout = time.Second
	p, q := publisher(t, o), queue(t)
	s := p.current()
	proxy.Stall(brokertest.Down)
	if err := p.Publish(within(t, time.Minute), parked(q, "")); !errors.Is(err, ErrDisconnected) {
		t.Errorf("got %v", err)
	}
	ended(t, s.Done(), "the session")
	if causeOf(s.Err()) != causeTimeout {
		t.Errorf("ended with %v", s.Err())
	}
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
	if err := silent(t).admit(within(t, 20*time.Millisecond), pub); !errors.Is(err, ErrBusy) {
		t.Errorf("its context ended: %v", err)
	}
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
			if err := <-result; !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
			if err := s.admit(t.Context(), pub); !errors.Is(err, tt.want) {
				t.Errorf("the next got %v", err)
			}
		})
	}
}

// A dry run that is refused is an answer, too.
func TestTheFirstAnswerMayBeARefusal(t *testing.T) {
	t.Parallel()
	p, q := publisher(t, options(t)), queue(t)
	missing := &message.Publication{Kind: message.KindPark, Exchange: "missing", Key: q}
	if err := p.Publish(within(t, 30*time.Second), missing); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
	must.Do(t, p.Publish(within(t, 30*time.Second), parked(q, "")))
}
