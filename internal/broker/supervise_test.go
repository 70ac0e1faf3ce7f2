package broker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/sethvargo/go-retry"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// wait is a serve function that keeps the session until it ends and says which it had.
func wait(sessions chan<- *Session) func(context.Context, *Session) error {
	return func(ctx context.Context, s *Session) error {
		sessions <- s
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// TestReplacedCredentialsEndThePause: who waits after a refusal checks whether there is something new to try. The pause
// is longer than any test.
func TestReplacedCredentialsEndThePause(t *testing.T) {
	t.Parallel()
	for name, unreadable := range map[string]bool{"refused": false, "unreadable": true} {
		t.Run(name, func(t *testing.T) {
			var password atomic.Value
			password.Store("old")
			asked := make(chan struct{}, 100)
			o := options(t, "amqp://127.0.0.1:1")
			o.Password = func() (string, error) {
				asked <- struct{}{}
				if unreadable && password.Load() == "old" {
					return "", errors.New("no such file")
				}
				return password.Load().(string), nil
			}
			d := NewDialer(o)
			refused := d.credentials()
			over := make(chan struct{})
			go func() {
				defer close(over)
				d.waitUnlessChanged(t.Context(), 24*time.Hour, refused)
			}()
			for range 3 { // once for refused, and twice without having changed
				<-asked
			}
			select {
			case <-over:
				t.Fatal("the pause ended for nothing")
			default:
			}
			password.Store("new")
			ended(t, over, "the pause")
		})
	}
}

func TestSuperviseReplacesALostSession(t *testing.T) {
	t.Parallel()
	proxy, o := proxied(t)
	r := prometheus.NewRegistry()
	o.Registerer = r
	var out brokertest.Log
	o.Logger = out.Logger()
	sessions := make(chan *Session, 10)
	stop := supervise(t, NewDialer(o), wait(sessions))
	for i := range 3 {
		s := <-sessions
		if s.Generation() != uint64(i+1) || brokertest.Metric(t, r, "sidecar_amqp_connected") != 1 {
			t.Errorf("round %d: generation %d, connected %v", i, s.Generation(), brokertest.Metric(t, r, "sidecar_amqp_connected"))
		}
		if i == 2 {
			break
		}
		proxy.Cut()
		ended(t, s.Done(), "the cut session")
	}
	if n := reconnects(t, r, causeNetwork); n != 2 {
		t.Errorf("%d reconnects", n)
	}
	wantErr(t, stop(), context.Canceled) // stopped with
	if n, err := testutil.GatherAndCount(r, "sidecar_amqp_connected"); err != nil || n != 0 {
		t.Errorf("after the end no connection should be up, and yet there is a value: %d, %v", n, err)
	}
	if n := strings.Count(out.String(), "broker session over"); n != 2 {
		t.Errorf("%d lines about lost sessions: %s", n, out.String())
	}
}

// TestServedSideBySide: what ends one use of a session alone costs the other nothing, and is begun again. When both have
// ended, the session does.
func TestServedSideBySide(t *testing.T) {
	t.Parallel()
	o := options(t, brokertest.URL(t))
	r := prometheus.NewRegistry()
	o.Registerer = r
	var out brokertest.Log
	o.Logger = out.Logger()
	missing := brokertest.Name(t, "missing")
	sessions := make(chan *Session, 10)
	calls := 0
	failing := func(ctx context.Context, s *Session) error {
		sessions <- s
		if calls++; calls == 3 {
			return nil
		}
		sub, err := s.Subscribe(ctx, missing)
		if err != nil {
			return err
		}
		_, err = sub.Consume(ctx, 1)
		return err
	}
	release := make(chan struct{})
	d := NewDialer(o)
	steady := func(ctx context.Context, s *Session) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	result := make(chan error, 1)
	go func() { result <- Supervise(t.Context(), d, failing, steady) }()
	first := <-sessions
	for range 2 {
		if s := <-sessions; s != first || s.Err() != nil {
			t.Errorf("begun again on another session, or on one that has ended: %v", s.Err())
		}
	}
	close(release)
	if err := <-result; err != nil || first.Err() == nil {
		t.Errorf("ended with %v, the session with %v", err, first.Err())
	}
	if n := reconnects(t, r, causeChannel); n != 2 || strings.Count(out.String(), "broker channel over") != 2 {
		t.Errorf("%d counted, log %s", n, out.String())
	}
}

func TestSuperviseTakesACorrectedPassword(t *testing.T) {
	t.Parallel()
	user := brokertest.User(t, "right")
	var password atomic.Value
	password.Store("wrong")
	r := prometheus.NewRegistry()
	o := options(t)
	o.Username, o.Registerer = text(user), r
	o.Password = func() (string, error) { return password.Load().(string), nil }
	sessions := make(chan *Session, 10)
	dialer := NewDialer(o)
	supervise(t, dialer, wait(sessions))
	brokertest.Eventually(t, 60*time.Second, "a refused login", func() bool { return reconnects(t, r, causeAuth) >= 1 })
	brokertest.Eventually(t, 60*time.Second, "the broker's words", func() bool {
		return strings.Contains(dialer.Failure(), "username or password not allowed")
	})
	password.Store("right")
	s := <-sessions

	// Rotated while the session is up: nothing happens until it is lost, and then the new one is used.
	brokertest.Ctl(t, "change_password", user, "rotated")
	password.Store("rotated")
	if s.Err() != nil {
		t.Errorf("a rotation ended the session: %v", s.Err())
	}
	s.Kill()
	<-sessions
}

// A session that was lost counts as lost, whatever serve returns about it.
func TestSuperviseDoesNotTakeALostSessionForDone(t *testing.T) {
	t.Parallel()
	rounds := 0
	err := Supervise(t.Context(), NewDialer(options(t)), func(_ context.Context, s *Session) error {
		if rounds++; rounds == 1 {
			s.Kill()
		}
		return nil
	})
	if err != nil || rounds != 2 {
		t.Errorf("%v after %d rounds", err, rounds)
	}
}

func TestConnectedMeansAllConnections(t *testing.T) {
	t.Parallel()
	proxy, two := proxied(t)
	r, one := prometheus.NewRegistry(), options(t)
	one.Registerer, two.Registerer = r, r
	var wg sync.WaitGroup
	defer wg.Wait()
	sessions := make(chan *Session, 10)
	supervise(t, NewDialer(one), wait(sessions))
	supervise(t, NewDialer(two), wait(sessions))
	<-sessions
	<-sessions
	connected := func() bool { return brokertest.Metric(t, r, "sidecar_amqp_connected") == 1 }
	brokertest.Eventually(t, time.Minute, "connected", connected)
	proxy.Refuse()
	brokertest.Eventually(t, time.Minute, "one of two is not connected", func() bool { return !connected() })
	proxy.Restore(t)
	brokertest.Eventually(t, 60*time.Second, "connected again", connected)
}

func TestPauseIsLongerAfterARefusedPassword(t *testing.T) {
	t.Parallel()
	d := NewDialer(options(t))
	var backoff retry.Backoff = retry.BackoffFunc(func() (time.Duration, bool) { return time.Second, false })
	for err, want := range map[error]time.Duration{
		amqp.ErrCredentials: authFactor * time.Second, errConfig: time.Second, ErrDisconnected: time.Second,
	} {
		if why, got, _ := d.lost(err, 0, &backoff); got != want {
			t.Errorf("%s: %v, want %v", why, got, want)
		}
	}
}

// TestBackoffBeginsAnew: after nine failures the next pause may be up to a quarter of a second, and after a session
// that was up for a millisecond at most.
func TestBackoffBeginsAnew(t *testing.T) {
	t.Parallel()
	var out brokertest.Log
	o := options(t)
	o.Backoff, o.steady, o.Logger = time.Millisecond, 20*time.Millisecond, out.Logger()
	rounds := 0
	must.Do(t, Supervise(t.Context(), NewDialer(o), func(context.Context, *Session) error {
		switch rounds++; {
		case rounds < 10:
			return errors.New("not yet")
		case rounds == 10:
			time.Sleep(2 * o.steady)
			return errors.New("after a while")
		}
		return nil
	}))
	if lines := out.Lines("after a while"); len(lines) != 1 || !strings.Contains(lines[0], "retry_in=0s") && !strings.Contains(lines[0], "retry_in=1ms") {
		t.Errorf("%q", lines)
	}
}
