package broker

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logs collects what is logged, to be searched for reasons and secrets.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// options reach the broker at urls, quickly impatient.
func options(urls ...string) Options {
	return Options{
		URLs: func() ([]string, error) { return urls, nil },
		Name: "broker test", Timeout: 5 * time.Second,
	}
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
	sub, err := s.Subscribe(t.Context(), queue, prefetch)
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	return sub, start(t, sub)
}

func start(t testing.TB, sub *Subscription) *inbox {
	t.Helper()
	deliveries, err := sub.Start(t.Context())
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return &inbox{q: deliveries}
}

// inbox takes deliveries one by one.
type inbox struct {
	q     *Deliveries
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

// drain takes what is left until the deliveries end, and counts it.
func (i *inbox) drain(t testing.TB) (n int) {
	t.Helper()
	for i.next(t) != nil {
		n++
	}
	return n
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

// ended waits for a Done channel.
func ended(t testing.TB, done <-chan struct{}, what string) {
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
func supervise(t testing.TB, d *Dialer, serve func(context.Context, *Session) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- Supervise(ctx, d, serve) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func reconnects(t testing.TB, r *prometheus.Registry, c cause) int {
	t.Helper()
	return int(value(t, r, "sidecar_amqp_reconnects_total", "cause", string(c)))
}

// value is the sum of the metric's series that have the label, or of all of them.
func value(t testing.TB, r *prometheus.Registry, name string, label ...string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := len(label) == 0
			for _, l := range m.GetLabel() {
				match = match || l.GetName() == label[0] && l.GetValue() == label[1]
			}
			if match {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestMetricsFollowTheContract(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	o := options()
	o.Registerer = r
	NewDialer(o)
	NewDialer(o) // the second connection of the same process
	defer func() {
		if recover() == nil {
			t.Error("another metric of the same name was accepted")
		}
	}()
	defer newMetrics(taken())
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

// taken is a registry in which one of our names is something else.
func taken() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "sidecar_amqp_reconnects_total", Help: "not ours"}))
	return r
}
