package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

func newStream(t testing.TB, p *Publisher) *Stream {
	t.Helper()
	c := must.Get(p.Stream(t.Context()))(t)
	t.Cleanup(c.Close)
	return c
}

func send(t testing.TB, c *Stream, pub *message.Publication) *Receipt {
	t.Helper()
	return must.Get(c.Send(within(t, 30*time.Second), pub))(t)
}

// confirmed waits for a message that must be returned as unroutable, or must not.
func confirmed(t testing.TB, r *Receipt, returned bool, what ...any) {
	t.Helper()
	if err := r.Wait(within(t, 30*time.Second)); errors.Is(err, ErrUnroutable) != returned || !returned && err != nil {
		t.Errorf("message %v: %v", what, err)
	}
}

func numbered(key string, n int) *message.Publication {
	return &message.Publication{Kind: message.KindRedrive, Key: key, Msg: amqp.Publishing{MessageId: fmt.Sprint(n), Body: fmt.Append(nil, n)}}
}

// TestStreamReportsReturns: of many messages under way exactly those without a queue fail, also when others have the
// same content, and in whatever order their confirms are waited for.
func TestStreamReportsReturns(t *testing.T) {
	t.Parallel()
	q := queue(t)
	c := newStream(t, publisher(t, options(t)))
	table := func(i int) amqp.Table {
		return amqp.Table{"n": int32(i), "at": time.Unix(int64(i), 0), "list": []any{int64(1), "x"}, "t": amqp.Table{"b": []byte{1}}} //nolint:gosec // small
	}
	for name, build := range map[string]func(i int) *message.Publication{
		"other headers": func(i int) *message.Publication {
			pub := numbered(q, i%10) // the same id and body many times
			pub.Msg.Headers = table(i)
			return pub
		},
		"all the same":               func(int) *message.Publication { return &message.Publication{Key: q} },
		"the returned ones the same": func(i int) *message.Publication { return numbered(q, i*(i%4/3)) },
	} {
		for _, inOrder := range []bool{true, false} {
			var receipts []*Receipt
			for i := range 80 {
				pub := build(i)
				if i%4 != 3 {
					pub.Key = "missing"
				}
				receipts = append(receipts, send(t, c, pub))
			}
			var waiting sync.WaitGroup
			for i, r := range receipts {
				waiting.Go(func() { confirmed(t, r, i%4 != 3, name, i) })
				if inOrder {
					waiting.Wait()
				}
			}
			waiting.Wait()
		}
	}
}

// TestStreamHasEveryHeader: what a header value is does not matter for whose return it is.
func TestStreamHasEveryHeader(t *testing.T) {
	t.Parallel()
	queue := queue(t)
	c := newStream(t, publisher(t, options(t)))
	for _, v := range []any{
		nil, true, false, byte(1), int8(-1), int16(-2), int32(-3), int64(math.MinInt64), 4, uint16(5), uint32(6), float32(0.1), 0.1, math.Copysign(0, -1),
		amqp.Decimal{Scale: 2, Value: -7}, "", "x", []byte{}, []byte{0}, time.Time{}, time.Now(), amqp.Table{}, amqp.Table(nil), amqp.Table{"a": nil}, []any{}, []any(nil), []any{nil, []any{}},
	} {
		lost := numbered("missing", 1)
		lost.Msg.Headers, lost.Msg.Timestamp = amqp.Table{"h": v}, time.Now()
		first, second := send(t, c, lost), send(t, c, numbered(queue, 1))
		confirmed(t, first, true, v)
		confirmed(t, second, false, "beside", v)
	}
}

// TestStreamDoesNotGuess: after the return of a message that was not sent, the outcome of all that are under way is
// unknown. The return of a message that was given up is its own.
func TestStreamDoesNotGuess(t *testing.T) {
	t.Parallel()
	pub := numbered("q", 1)
	why := &ReturnedError{Code: 312, Key: "q"}
	c := &Stream{window: streamWindow, slots: make(chan struct{}, 1)}
	under := func(pub *message.Publication) *Receipt {
		r := &Receipt{stream: c, pub: pub}
		c.waits.Add(1)
		c.inflight = append(c.inflight, r)
		return r
	}
	r, given := under(pub), under(&message.Publication{Exchange: "e", Key: "k", Msg: amqp.Publishing{Body: []byte("given up")}})
	c.giveUp(given)
	if !c.Ended() {
		t.Error("more would be sent behind a message that was given up")
	}
	print := given.fingerprint()
	if c.returned(print, why); c.returnOf(r) != nil {
		t.Error("the return of a message that was given up counts for another one")
	}
	if c.returned(print, why); !errors.Is(c.returnOf(r), ErrUnknown) || errors.Is(c.returnOf(r), ErrUnroutable) {
		t.Error("a message that was returned twice was sent once, and the others count as known")
	}
}

// TestNoRoomBehindGivenUpMessages: the wait for room ends when there will be none.
func TestNoRoomBehindGivenUpMessages(t *testing.T) {
	t.Parallel()
	c := &Stream{
		session: &Session{lifetime: newLifetime(), unchanged: make(chan struct{}), options: &Options{Alarm: NewAlarm(slog.New(slog.DiscardHandler))}},
		slots:   make(chan struct{}, 1),
	}
	ended := make(chan error)
	go func() { ended <- c.room(t.Context()) }()
	r := &Receipt{stream: c, pub: &message.Publication{}}
	c.waits.Add(1)
	c.giveUp(r)
	wantErr(t, <-ended, ErrDisconnected)
	c.session.setBlocked(true, "")
	if err := c.room(t.Context()); !errors.Is(err, ErrBlocked) {
		t.Errorf("%v in an alarm", err)
	}
	if n := len(c.slots); n != 1 {
		t.Errorf("room for %d messages after two that were refused, want 1", n)
	}
}

// TestStreamGathers: messages that are kept back leave in their order, by Flush or with whatever else is written.
func TestStreamGathers(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := queue(t)
	p := publisher(t, options(t))
	must.Do(t, p.Publish(within(t, 30*time.Second), parked(queue, "another")))
	c := newStream(t, p)
	c.Gather()
	confirmed(t, send(t, c, numbered(queue, 1000)), false, "the first, which is tried")
	for from, leave := range map[int]func(){
		0:  c.Flush,
		20: func() { must.Do(t, p.Publish(within(t, 30*time.Second), parked(queue, "another"))) }, // on another channel
	} {
		var receipts []*Receipt
		for i := range 20 {
			receipts = append(receipts, send(t, c, numbered(queue, from+i)))
		}
		if c.session.wire.Pending() == 0 {
			t.Error("nothing is kept back")
		}
		if leave(); c.session.wire.Pending() != 0 {
			t.Error("something is still kept back")
		}
		for i, r := range receipts {
			confirmed(t, r, false, from+i)
		}
	}
	got := map[int][]int{}
	for range 43 {
		if d := brokertest.Get(t, url, queue, time.Minute); string(d.Body) != "another" {
			n := must.Get(strconv.Atoi(d.MessageId))(t)
			got[n/20] = append(got[n/20], n)
		}
	}
	if len(got[0]) != 20 || len(got[1]) != 20 || !slices.IsSorted(got[0]) || !slices.IsSorted(got[1]) {
		t.Errorf("got %v", got)
	}
}

// TestFullPipeFlushes: what waits for room would wait for ever for confirms of messages that were never written. All
// arrive in their order.
func TestFullPipeFlushes(t *testing.T) {
	t.Parallel()
	queue, o := queue(t), options(t)
	o.Heartbeat = time.Minute // one would flush, too
	c := newStream(t, publisher(t, o))
	c.Gather()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	const n = streamWindow + 50
	for i := range n {
		r, err := c.Send(within(t, 10*time.Second), numbered(queue, i))
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		waiting.Go(func() { confirmed(t, r, false, i) })
	}
	c.Flush()
	waiting.Wait()
	for i := range n {
		if d := brokertest.Get(t, brokertest.URL(t), queue, 10*time.Second); d.MessageId != strconv.Itoa(i) || d.DeliveryMode != amqp.Persistent {
			t.Fatalf("message %d is %s", i, d.MessageId)
		}
	}
}
