package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

func pipe(t testing.TB, p *Publisher) *Pipe {
	t.Helper()
	c, err := p.Pipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func numbered(key string, n int) *Publication {
	return &Publication{Kind: KindRedrive, Key: key, Msg: amqp.Publishing{MessageId: fmt.Sprint(n), Body: fmt.Append(nil, n)}}
}

// TestPipeKeepsOrder: many messages under way at once arrive in their order, each confirmed.
func TestPipeKeepsOrder(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	o := options(url)
	o.Registerer = prometheus.NewRegistry()
	c := pipe(t, publisher(t, o))
	defer c.Close()
	const n = 1000
	receipts := make(chan *Receipt, n)
	failed := make(chan error, n)
	go func() {
		defer close(failed)
		for r := range receipts {
			failed <- r.Wait(within(t, 30*time.Second))
		}
	}()
	for i := range n {
		r, err := c.Send(t.Context(), numbered(queue, i))
		if err != nil {
			t.Fatal(err)
		}
		receipts <- r
	}
	close(receipts)
	for err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if d := brokertest.Get(t, url, queue, 10*time.Second); d.MessageId != fmt.Sprint(i) || d.DeliveryMode != amqp.Persistent {
			t.Fatalf("message %d is %s", i, d.MessageId)
		}
		if i == 20 {
			break
		}
	}
}

// TestPipeTellsWhatCameBack: of many under way exactly those that found no queue failed, also when others are like them.
func TestPipeTellsWhatCameBack(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	nowhere := brokertest.Name(t, "nowhere")
	c := pipe(t, publisher(t, options(url)))
	defer c.Close()
	headers := func(i int) amqp.Table {
		return amqp.Table{"n": int32(i), "at": time.Unix(int64(i), 0), "list": []any{int64(1), "x"}, "t": amqp.Table{"b": []byte{1}}} //nolint:gosec // small
	}
	var receipts []*Receipt
	for i := range 200 {
		pub := numbered(queue, i%10) // the same id and body many times
		pub.Msg.Headers = headers(i)
		if i%7 == 3 {
			pub.Key = nowhere
		}
		r, err := c.Send(t.Context(), pub)
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, r)
	}
	for i, r := range receipts {
		if err := r.Wait(within(t, 30*time.Second)); errors.Is(err, ErrUnroutable) != (i%7 == 3) || i%7 != 3 && err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

// TestPipeTellsAllOfTheSame: of messages that nothing tells apart each one that came back says so, whichever is asked first.
func TestPipeTellsAllOfTheSame(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	c := pipe(t, publisher(t, options(url)))
	defer c.Close()
	nowhere := brokertest.Name(t, "nowhere")
	var receipts []*Receipt
	for i := range 200 {
		pub := &Publication{Key: nowhere}
		if i%4 == 3 {
			pub = &Publication{Key: queue}
		}
		r, err := c.Send(t.Context(), pub)
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, r)
	}
	for i, r := range receipts {
		if err := r.Wait(within(t, 30*time.Second)); errors.Is(err, ErrUnroutable) != (i%4 != 3) || i%4 == 3 && err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

// TestPipeTellsTwins: of messages that are the same to the last byte as many are told to be unroutable as were, and no others,
// in whatever order their confirms are waited for.
func TestPipeTellsTwins(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	nowhere := brokertest.Name(t, "nowhere")
	c := pipe(t, publisher(t, options(url)))
	defer c.Close()
	for range 10 {
		var waiting sync.WaitGroup
		for i := range 200 {
			pub := numbered(queue, i)
			if i%2 == 1 {
				pub = numbered(nowhere, 0)
			}
			r, err := c.Send(t.Context(), pub)
			if err != nil {
				t.Fatal(err)
			}
			waiting.Go(func() {
				if err := r.Wait(within(t, 30*time.Second)); errors.Is(err, ErrUnroutable) != (i%2 == 1) || i%2 == 0 && err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			})
		}
		waiting.Wait()
	}
}

// TestPipeKnowsEveryHeader: what a header value is does not matter for whose return it is.
func TestPipeKnowsEveryHeader(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	c := pipe(t, publisher(t, options(url)))
	defer c.Close()
	for _, v := range []any{
		nil, true, false, byte(1), int8(-1), int16(-2), int32(-3), int64(math.MinInt64), 4, uint16(5), uint32(6), float32(0.1), 0.1, -0.0,
		amqp.Decimal{Scale: 2, Value: -7}, "", "x", []byte{}, []byte{0}, time.Time{}, time.Now(), amqp.Table{}, amqp.Table(nil), amqp.Table{"a": nil}, []any{}, []any(nil), []any{nil, []any{}},
	} {
		lost, there := numbered(brokertest.Name(t, "nowhere"), 1), numbered(queue, 1)
		lost.Msg.Headers, lost.Msg.Timestamp = amqp.Table{"h": v}, time.Now()
		var receipts []*Receipt
		for _, pub := range []*Publication{lost, there} {
			r, err := c.Send(t.Context(), pub)
			if err != nil {
				t.Fatal(err)
			}
			receipts = append(receipts, r)
		}
		if err := receipts[0].Wait(within(t, 30*time.Second)); !errors.Is(err, ErrUnroutable) {
			t.Errorf("%T %v: %v", v, v, err)
		}
		if err := receipts[1].Wait(within(t, 30*time.Second)); err != nil {
			t.Errorf("beside %T %v: %v", v, v, err)
		}
	}
}

// TestPipeDoesNotGuess: a message that comes back as something else than was sent counts for all that are under way. One that
// was given up is nobody's any more.
func TestPipeDoesNotGuess(t *testing.T) {
	t.Parallel()
	pub := numbered("q", 1)
	back := amqp.Return{ReplyCode: 312, RoutingKey: "q", MessageId: pub.Msg.MessageId, Body: []byte("another")}
	given := amqp.Return{ReplyCode: 312, Exchange: "e", RoutingKey: "k", Body: []byte("given up")}
	under := func(c *Pipe) *Receipt {
		r := &Receipt{pipe: c, pub: pub}
		c.inflight = map[*Receipt]struct{}{r: {}}
		return r
	}
	c := &Pipe{}
	r := under(c)
	c.giveUp(&Receipt{pipe: c, pub: &Publication{Exchange: "e", Key: "k", Msg: amqp.Publishing{Body: []byte("given up")}}})
	if c.add(&given); c.cameBack(r) != nil {
		t.Error("what was given up is taken for what is under way")
	}
	if c.add(&given); c.cameBack(r) == nil {
		t.Error("what came back twice was given up once")
	}
	c = &Pipe{}
	r = under(c)
	if c.add(&back); !errors.Is(c.cameBack(r), ErrUnroutable) {
		t.Error("what came back is taken for routed")
	}
}

// TestPipeEnds: a channel that the broker closes, a connection that breaks, and a message that cannot be written.
func TestPipeEnds(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	proxy := brokertest.NewProxy(t, url)
	p := publisher(t, options(proxy.URL(t, url)))
	c := pipe(t, p)
	if _, err := c.Send(t.Context(), &Publication{Key: queue, Msg: amqp.Publishing{Headers: amqp.Table{"x": struct{}{}}}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a header of no AMQP type: %v", err)
	}
	first, err := c.Send(t.Context(), numbered(queue, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(t.Context()); err != nil {
		t.Errorf("the first: %v", err)
	}
	missing := &Publication{Exchange: brokertest.Name(t, "missing"), Key: queue}
	r, err := c.Send(t.Context(), missing)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(within(t, 30*time.Second)); !errors.Is(err, ErrRefused) || !errors.Is(err, ErrUnknown) {
		t.Errorf("a missing exchange: %v", err)
	}
	if r, err := c.Send(t.Context(), numbered(queue, 2)); err == nil {
		t.Errorf("sent on a closed channel: %v", r.Wait(within(t, 30*time.Second)))
	} else if !errors.Is(err, ErrDisconnected) {
		t.Errorf("%v", err)
	}

	c = pipe(t, p)
	c.tried = 1 // or the first would meet the silence before it is sent
	proxy.Stall(brokertest.Both)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r, err = c.Send(ctx, numbered(queue, 3))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(ctx); !errors.Is(err, ErrUnknown) {
		t.Errorf("no confirm: %v", err)
	}
	if r, err = c.Send(within(t, 300*time.Millisecond), numbered(queue, 4)); err == nil {
		proxy.Cut()
		err = r.Wait(within(t, 30*time.Second))
	}
	if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrDisconnected) {
		t.Errorf("a broken connection: %v", err)
	}
	if _, err := NewPublisher(NewDialer(options(url))).Pipe(t.Context()); !errors.Is(err, ErrDisconnected) {
		t.Errorf("never connected: %v", err)
	}
}

// TestPipeInAnAlarm: what the broker does not read is not waited for until the alarm is over, nor is a question.
func TestPipeInAnAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	p := publisher(t, options(url))
	asking, c := pipe(t, p), pipe(t, p)
	c.tried = 1
	node.Alarm()
	r, err := c.Send(t.Context(), numbered(queue, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(t.Context()); !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrBlocked) {
		t.Errorf("%v", err)
	}
	if _, err := c.Send(t.Context(), numbered(queue, 2)); !errors.Is(err, ErrBlocked) {
		t.Errorf("%v", err)
	}
	if _, err := asking.Send(t.Context(), numbered(queue, 3)); !errors.Is(err, ErrBlocked) {
		t.Errorf("%v", err)
	}
	asking = pipe(t, publisher(t, options(url))) // nothing has told this connection
	if _, err := asking.Send(t.Context(), numbered(queue, 4)); !errors.Is(err, ErrBlocked) || errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
}
