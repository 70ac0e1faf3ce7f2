package consume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

const (
	cutRetries = 2 // SIDECAR_MAX_RETRIES in this test
	cutKeys    = 20
)

// taken is an app that takes each message after as many failures as the beginning of its id says, and writes down the
// retry counts that it saw.
type taken struct {
	mu    sync.Mutex
	seen  map[string][]int // by body
	order []string         // bodies, an attempt each
	grown chan struct{}    // closed when there is one more
}

func newTaken() *taken { return &taken{seen: map[string][]int{}, grown: make(chan struct{})} }

func (a *taken) Dispatch(_ context.Context, m *message.Message) message.Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen[string(m.Body)] = append(a.seen[string(m.Body)], m.RetryCount)
	a.order = append(a.order, string(m.Body))
	close(a.grown)
	a.grown = make(chan struct{})
	if m.RetryCount < int(m.Body[0]-'0') {
		return answer(503)
	}
	return answer(200)
}

// took is how many messages have had their last attempt.
func (a *taken) took() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for body, counts := range a.seen {
		if slices.Contains(counts, lastCount(body)) {
			n++
		}
	}
	return n
}

// inOrder fails the test if an attempt follows one of a later message of its key. Equal messages have no order.
func (a *taken) inOrder(t *testing.T) {
	t.Helper()
	last := map[int]int{}
	for _, body := range a.order {
		var fails, n int
		if _, err := fmt.Sscanf(body, "%d/%d", &fails, &n); err != nil {
			continue
		}
		if n < last[n%cutKeys] {
			t.Errorf("%s was POSTed after message %d of its key", body, last[n%cutKeys])
		}
		last[n%cutKeys] = n
	}
}

func lastCount(body string) int { return min(int(body[0]-'0'), cutRetries) }

// reach waits until there were n attempts.
func (a *taken) reach(n int) {
	for {
		a.mu.Lock()
		total, grown := len(a.order), a.grown
		a.mu.Unlock()
		if total >= n {
			return
		}
		<-grown
	}
}

// beside is a publisher with a link that is not cut.
func beside(t *testing.T) func(Publisher) Publisher {
	t.Helper()
	return func(Publisher) Publisher {
		url := brokertest.URL(t) // start has chosen the node
		p := broker.NewPublisher(broker.NewDialer(broker.Options{
			URLs: func() ([]string, error) { return []string{url}, nil }, Name: "beside", Registerer: prometheus.NewRegistry(),
		}))
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = p.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
		return p
	}
}

// TestNothingIsRepeatedAfterACut: the link to the broker is cut again and again under load, and each time there is a pause
// after it. Every attempt of a message with an id is made once, in the order of its key where there is one, and what is
// parked is parked once. Messages that are equal to the last byte are never lost.
func TestNothingIsRepeatedAfterACut(t *testing.T) {
	t.Parallel()
	const messages, cuts = 300, 4
	for name, s := range map[string]settings{
		"classic":   {},
		"published": {change: func(p *topology.Plan) { *p = *p.WithoutReject() }},
		"native":    {native: true},
		"batches":   {batch: Batch{Size: 5, Wait: time.Millisecond, Bytes: 1 << 20}},
		"in order":  {order: byKey, queueType: "quorum", retryDelay: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newTaken()
			s.backoff = time.Millisecond
			s.concurrency, s.prefetch, s.maxRetries, s.quiet = 8, 30, cutRetries, true
			s.publisher = beside(t)
			r := start(t, app, s)
			r.flow.Hold(flow.Operator, "until there is a backlog")
			keyed := func(id, body, key string) amqp.Publishing {
				return amqp.Publishing{MessageId: id, Body: []byte(body), DeliveryMode: 2, Headers: amqp.Table{"key": key}}
			}
			r.send(keyed("first", "0/first", ""))
			var all []amqp.Publishing
			for n := range messages {
				body := fmt.Sprintf("%d/%d", max(0, n%10-6), n) // three of ten fail: once, twice, always
				id := body
				switch n % 10 {
				case 0:
					body, id = "0/equal", "0/equal"
				case 1:
					body, id = "0/without an id", ""
				}
				all = append(all, keyed(id, body, fmt.Sprint(n%cutKeys)))
			}
			r.send(all...)
			r.flow.Lift(flow.Operator)
			for n := range cuts {
				app.reach((n + 1) * messages / (cuts + 1))
				r.cut()
				r.flow.Hold(flow.Operator, "once more")
				r.eventually("the pause", func() bool { return !r.Active() })
				r.flow.Lift(flow.Operator)
			}
			r.eventually("the last attempt of each", func() bool { return app.took() == messages/10*8+3 })
			r.holds(r.dlq(), messages/10)
			r.holds(r.plan.Queue, 0)
			r.drain(soon)
			if s.order != "" {
				app.inOrder(t)
			}
			for body, counts := range app.seen {
				slices.Sort(counts)
				want := []int{0, 1, 2}[:1+lastCount(body)]
				switch n := len(counts); {
				case strings.HasSuffix(body, "equal") && n <= messages/10:
				case strings.HasSuffix(body, "id") && n >= messages/10:
				case !slices.Equal(counts, want):
					t.Errorf("%s was POSTed with the retry counts %v, want %v", body, counts, want)
				}
			}
		})
	}
}

// TestLostSessionInOrder: an attempt of a lost session keeps its key busy, and its message is handled again first.
func TestLostSessionInOrder(t *testing.T) {
	t.Parallel()
	var l ledger
	posting, release := make(chan struct{}, 4), make(chan struct{})
	var once atomic.Bool
	r := start(t, l.answers(func(m *message.Message) message.Outcome {
		if m.MessageID == "a/0" && once.CompareAndSwap(false, true) {
			posting <- struct{}{}
			<-release
			return answer(500)
		}
		return answer(200)
	}), settings{order: byKey})
	r.publishKeyed("a", 0, 3)
	<-posting
	r.proxy.Cut()
	r.publishKeyed("b", 0, 3)
	r.acked(3)
	same(t, &l, "a", []string{"a/0#0"})
	close(release)
	r.acked(6)
	same(t, &l, "a", []string{"a/0#0", "a/0#1", "a/1#0", "a/2#0"})
}
