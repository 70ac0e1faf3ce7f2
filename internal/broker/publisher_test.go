package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// publisher runs a Publisher until the test ends.
func publisher(t testing.TB, o Options) *Publisher {
	t.Helper()
	p := NewPublisher(NewDialer(o))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	connected(t, p)
	return p
}

func connected(t testing.TB, p *Publisher) {
	t.Helper()
	brokertest.Eventually(t, 60*time.Second, "the publisher is connected", p.Connected)
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// wantBodies takes what is in the queue, which must be these and no more.
func wantBodies(t testing.TB, q string, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, string(brokertest.Get(t, brokertest.URL(t), q, 10*time.Second).Body))
	}
	if n := brokertest.Ready(t, brokertest.URL(t), q); n != 0 || !slices.Equal(got, want) {
		t.Errorf("%q and %d more, want %q", got, n, want)
	}
}

func parked(key string, body string) *message.Publication {
	return &message.Publication{Kind: message.KindPark, Key: key, Msg: amqp.Publishing{
		Headers: amqp.Table{"x-final-reason": "max_retries"}, Body: []byte(body), MessageId: "id",
	}}
}

func TestPublishMany(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p, q := publisher(t, options(t)), queue(t)
	const goroutines, each = 40, 3 // more than there are channels
	var wg sync.WaitGroup
	var failed, returned atomic.Int64
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				if err := p.Publish(within(t, time.Minute), parked(q, fmt.Sprint(g, i))); err != nil {
					failed.Add(1)
				}
				// Between the good ones: a return must be attributed to the message it belongs to.
				if err := p.Publish(within(t, time.Minute), parked(q+"-missing", "")); errors.Is(err, ErrUnroutable) {
					returned.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() != 0 || returned.Load() != goroutines*each {
		t.Errorf("%d failed, %d of %d were returned", failed.Load(), returned.Load(), goroutines*each)
	}
	brokertest.WaitReady(t, url, q, goroutines*each)
}

func TestPublishFailures(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p, q := publisher(t, options(t)), queue(t)
	full := brokertest.Queue(t, url, brokertest.Name(t, "full"), amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	brokertest.Send(t, url, full, "occupies it")
	huge := strings.Repeat("x", amqpwire.FrameMax)
	long := strings.Repeat("x", 256)
	tests := map[string]struct {
		pub  message.Publication
		want error
		code int
	}{
		"no queue":            {message.Publication{Key: q + "-missing"}, ErrUnroutable, 0},
		"no exchange":         {message.Publication{Exchange: q + "-missing", Key: q}, ErrUnroutable, 404},
		"full":                {message.Publication{Key: full}, ErrNacked, 0},
		"another's user id":   {message.Publication{Key: q, Msg: amqp.Publishing{UserId: "stranger"}}, ErrRefused, 406},
		"bad expiration":      {message.Publication{Key: q, Msg: amqp.Publishing{Expiration: "soon"}}, ErrInvalid, 0},
		"direct reply-to":     {message.Publication{Key: q, Msg: amqp.Publishing{ReplyTo: message.DirectReply}}, ErrInvalid, 0},
		"long key":            {message.Publication{Key: long}, ErrInvalid, 0},
		"long exchange":       {message.Publication{Exchange: long}, ErrInvalid, 0},
		"long message id":     {message.Publication{Key: q, Msg: amqp.Publishing{MessageId: long}}, ErrInvalid, 0},
		"long header name":    {message.Publication{Key: q, Msg: amqp.Publishing{Headers: amqp.Table{long: 1}}}, ErrInvalid, 0},
		"long name below":     {message.Publication{Key: q, Msg: amqp.Publishing{Headers: amqp.Table{"a": []any{amqp.Table{long: 1}}}}}, ErrInvalid, 0},
		"no AMQP type":        {message.Publication{Key: q, Msg: amqp.Publishing{Headers: amqp.Table{"a": struct{}{}}}}, ErrInvalid, 0},
		"no AMQP type below":  {message.Publication{Key: q, Msg: amqp.Publishing{Headers: amqp.Table{"a": []any{uint64(1)}}}}, ErrInvalid, 0},
		"headers above frame": {message.Publication{Key: q, Msg: amqp.Publishing{Headers: amqp.Table{"a": huge}}}, ErrTooLarge, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := p.Publish(within(t, time.Minute), &tt.pub)
			if wantErr(t, err, tt.want); tt.code != 0 {
				wantCode(t, err, tt.code)
			}
			wantErr(t, p.Publish(within(t, time.Minute), parked(q, name))) // the next publish suffered
		})
	}
	if p.current().Generation() != 1 {
		t.Error("a failure cost the connection")
	}
	brokertest.WaitReady(t, url, q, len(tests))
}

// What fits is measured as the library writes it: one byte more would close the connection.
func TestPublishHeadersThatJustFit(t *testing.T) {
	t.Parallel()
	p, q := publisher(t, options(t)), queue(t)
	room := func(n int) *message.Publication {
		return &message.Publication{Key: q, Msg: amqp.Publishing{Headers: amqp.Table{"a": strings.Repeat("x", n)}}}
	}
	largest := sort.Search(amqpwire.FrameMax, func(n int) bool {
		p := room(n + 1)
		return amqpwire.Fits(p.Exchange, p.Key, &p.Msg, amqpwire.FrameMax) != nil
	})
	must.Do(t, p.Publish(within(t, time.Minute), room(largest)))
	wantErr(t, p.Publish(within(t, time.Minute), room(largest+1)), ErrTooLarge)
	if largest < amqpwire.FrameMax-100 {
		t.Errorf("only %d bytes fit", largest)
	}
	if p.current().Generation() != 1 {
		t.Error("the broker closed the connection")
	}
}

// ways is each way to publish, by name.
func ways(t *testing.T, p *Publisher) map[string]func(context.Context, *message.Publication) error {
	t.Helper()
	var c *Stream
	return map[string]func(context.Context, *message.Publication) error{
		"publisher": p.Publish,
		"lane":      p.NewLane("").Publish,
		"stream": func(ctx context.Context, pub *message.Publication) error {
			if c == nil || c.Ended() {
				c = newStream(t, p)
			}
			r, err := c.Send(ctx, pub)
			if err != nil {
				return err
			}
			return r.Wait(ctx)
		},
	}
}

// TestUnknownIsNotSentAgain: a message whose confirm has not come may be in the queue. Nothing here sends it a second
// time: not when its time is over, not when the connection is lost, and not on the next connection.
func TestUnknownIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"publisher", "lane", "stream"} {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, connection lost %t", name, cut), func(t *testing.T) {
				t.Parallel()
				proxy, o := proxied(t)
				p, q := publisher(t, o), queue(t)
				publish := ways(t, p)[name]
				acquire := func() *Stream { return must.Get(p.acquire(within(t, time.Minute), p.current()))(t) }
				for _, c := range []*Stream{acquire(), acquire()} { // one more for a second attempt
					p.put(c)
				}
				must.Do(t, publish(within(t, time.Minute), publication(q, "confirmed")))
				proxy.Stall(brokertest.Down)
				ctx, cancel := context.WithCancel(within(t, time.Minute))
				result := make(chan error, 1)
				go func() { result <- publish(ctx, publication(q, "unknown")) }()
				brokertest.WaitReady(t, brokertest.URL(t), q, 2) // it arrived; only the confirm is held back
				if cut {
					proxy.Cut()
				} else {
					cancel()
				}
				wantErr(t, <-result, ErrUnknown)
				cancel()
				proxy.Restore(t)
				connected(t, p)
				// The late confirm of a message that was given up does not count for the next one, and the connection stays.
				wantErr(t, publish(within(t, time.Minute), publication(q+"-missing", "")), ErrUnroutable)
				must.Do(t, publish(within(t, time.Minute), publication(q, "after")))
				wantBodies(t, q, "confirmed", "unknown", "after")
				if !cut && p.current().Generation() != 1 {
					t.Error("another connection")
				}
			})
		}
	}
}

func TestPublishWaitsForAChannelNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	p := publisher(t, options(t))
	for range maxChannels {
		<-p.slots
	}
	wantErr(t, p.Publish(within(t, 50*time.Millisecond), parked("q", "")), ErrBusy, context.DeadlineExceeded)
}

func TestPublisherStopsUnderLoad(t *testing.T) {
	t.Parallel()
	q := queue(t)
	for range 3 {
		p := NewPublisher(NewDialer(options(t)))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = p.Run(ctx) })
		connected(t, p)
		for range 40 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = p.Publish(within(t, time.Minute), parked(q, ""))
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		cancel()
		wg.Wait()
		if p.Connected() {
			t.Error("connected after the end")
		}
	}
}
