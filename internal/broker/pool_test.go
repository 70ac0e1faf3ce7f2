package broker

import (
	"errors"
	"testing"
	"time"

	"sidecar/internal/brokertest"
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
	l := p.current()
	brokertest.Eventually(t, 30*time.Second, "an idle channel", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.idle) == 1
	})
	if err := p.Publish(within(t, time.Minute), parked(q, "")); err != nil || l.session.Err() != nil {
		t.Errorf("%v, session %v", err, l.session.Err())
	}
}

func TestSilenceWithoutAnAlarmEndsThePublishersSession(t *testing.T) {
	t.Parallel()
	proxy, o := proxied(t)
	o.Timeout = time.Second
	p, q := publisher(t, o), queue(t)
	s := p.current().session
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

// Behind the one that goes alone nobody waits longer than its own context, the session or the alarm allows.
func TestWaitingForTheFirstAnswer(t *testing.T) {
	t.Parallel()
	alone := func(t *testing.T) *pool {
		t.Helper()
		l := newPool(dial(t, options(t)))
		must.Get(l.enter(t.Context()))(t)
		return l
	}
	l := alone(t)
	if _, err := l.enter(within(t, 20*time.Millisecond)); !errors.Is(err, ErrBusy) {
		t.Errorf("its context ended: %v", err)
	}
	for name, tt := range map[string]struct {
		happens func(*pool)
		want    error
	}{
		"the session ends": {func(l *pool) { l.session.Kill() }, ErrDisconnected},
		"the alarm begins": {func(l *pool) { l.session.setBlocked(true) }, ErrBlocked},
		"an answer comes":  {func(l *pool) { l.prove() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := alone(t)
			result := make(chan error)
			go func() {
				_, err := l.enter(within(t, time.Minute))
				result <- err
			}()
			tt.happens(l)
			if err := <-result; !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
			if _, err := l.enter(t.Context()); !errors.Is(err, tt.want) && !errors.Is(err, ErrBusy) {
				t.Errorf("the next got %v", err)
			}
		})
	}
}
