package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.OneVhost{M: m}) }

// options reach the broker at urls. Without one they reach the test's virtual host.
func options(t testing.TB, at ...string) Options {
	t.Helper()
	if len(at) == 0 {
		at = []string{brokertest.URL(t)}
	}
	return Options{
		URLs: urls(at...), Name: "broker test", Timeout: 30 * time.Second, Backoff: 20 * time.Millisecond,
		closeTimeout: 200 * time.Millisecond, blockedPatience: 200 * time.Millisecond, credentialsPoll: 10 * time.Millisecond,
	}
}

// proxied reach the broker through a proxy.
func proxied(t testing.TB) (*brokertest.Proxy, Options) {
	t.Helper()
	url := brokertest.URL(t)
	proxy := brokertest.NewProxy(t, url)
	return proxy, options(t, proxy.URL(t, url))
}

func text(s string) func() (string, error) { return func() (string, error) { return s, nil } }

// dial returns a session that is closed when the test ends.
func dial(t testing.TB, o Options) *Session {
	t.Helper()
	s, err := NewDialer(o).Dial(t.Context())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

func subscribe(t testing.TB, s *Session, queue string, prefetch int) (*Subscription, *inbox) {
	t.Helper()
	sub, err := s.Subscribe(t.Context(), queue)
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	return sub, start(t, sub, prefetch)
}

func start(t testing.TB, sub *Subscription, prefetch int) *inbox {
	t.Helper()
	consumer, err := sub.Consume(t.Context(), prefetch)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return &inbox{q: consumer}
}

// inbox takes deliveries one by one.
type inbox struct {
	q     *Consumer
	taken []*Delivery
	ended bool
}

// next is the next delivery, nil after the last one.
func (i *inbox) next(t testing.TB) *Delivery {
	t.Helper()
	for len(i.taken) == 0 && !i.ended {
		select {
		case <-i.q.Ready():
			i.taken, i.ended = i.q.Take(nil)
			for _, d := range i.taken {
				d.DecodeHeaders()
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no delivery")
		}
	}
	if len(i.taken) == 0 {
		return nil
	}
	d := i.taken[0]
	i.taken = i.taken[1:]
	return d
}

// next is the next delivery; the test fails when none comes.
func next(t testing.TB, i *inbox) *Delivery {
	t.Helper()
	d := i.next(t)
	if d == nil {
		t.Fatal("the deliveries ended")
	}
	return d
}

// wantErr compares an error with all that it has to be; without any it has to be nil. Only where ErrUnknown is wanted may
// the outcome be unknown.
func wantErr(t testing.TB, err error, wants ...error) {
	t.Helper()
	wanted := len(wants) > 0 && wants[0] != nil
	ok := (err != nil) == wanted && errors.Is(err, ErrUnknown) == slices.Contains(wants, ErrUnknown)
	for _, want := range wants {
		ok = ok && errors.Is(err, want)
	}
	if !ok {
		t.Errorf("got %v, want %v", err, wants)
	}
}

// errOf is the error of a call with two results.
func errOf[T any](_ T, err error) error { return err }

// wantCause compares the cause of an error, and looks for a text in it.
func wantCause(t testing.TB, err error, want cause, text string) {
	t.Helper()
	if err == nil || causeOf(err) != want || !strings.Contains(err.Error(), text) {
		t.Errorf("%v is %s, want %s with %q", err, causeOf(err), want, text)
	}
}

// wantCode compares the reply code of a refusal.
func wantCode(t testing.TB, err error, want int) {
	t.Helper()
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Code != want || refused.Text == "" {
		t.Errorf("got %v, want a refusal with code %d", err, want)
	}
}

// ended waits for a Done channel.
func ended[T any](t testing.TB, done <-chan T, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatalf("%s did not end", what)
	}
}

func queue(t testing.TB) string {
	t.Helper()
	return brokertest.Queue(t, brokertest.URL(t), brokertest.Name(t, "q"), nil)
}

// supervise runs Supervise until the test ends or the returned function is called, which returns its result.
func supervise(t testing.TB, d *Dialer, serves ...Serve) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- Supervise(ctx, d, serves...) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func reconnects(t testing.TB, r *prometheus.Registry, c cause) int {
	t.Helper()
	return int(brokertest.Metric(t, r, "sidecar_amqp_reconnects_total", "cause", string(c)))
}

func TestMetricsFollowTheContract(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	o := options(t, "")
	o.Registerer = r
	NewDialer(o)
	NewDialer(o) // the second connection of the same process
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for _, name := range []string{
		"sidecar_amqp_connected", "sidecar_amqp_blocked", "sidecar_amqp_reconnects_total",
		"sidecar_publish_confirm_duration_seconds",
	} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n == 0 {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
}
