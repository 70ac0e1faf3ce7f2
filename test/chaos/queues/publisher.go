package queues

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/source"
)

// outstanding is how many messages wait for their confirms at most.
const outstanding = 256

// Publisher publishes to every queue in turn, each message once: a message with an unknown outcome is not published
// again, so that the messages of a key are in the queue in the order of their numbers.
type Publisher struct {
	Run  Run
	URL  string
	Rate int // messages per second, of all queues
	Log  *ledger.Writer

	Sent      atomic.Int64 // messages with a result
	Confirmed atomic.Int64
	Hold      atomic.Bool // nothing is published while it is true

	next  [][]int // the number of the next message, by queue and key
	rng   *rand.Rand
	queue int
}

// pending is a message that waits for its confirm.
type pending struct {
	sent    Sent
	confirm *amqp.DeferredConfirmation
}

// Publish publishes until ctx ends, and writes every result down.
func (p *Publisher) Publish(ctx context.Context) error {
	p.next, p.rng = make([][]int, len(p.Run.Queues)), rand.New(rand.NewPCG(p.Run.Seed, 1))
	for i := range p.next {
		p.next[i] = make([]int, p.Run.Keys)
	}
	for ctx.Err() == nil {
		if err := p.session(ctx); err != nil {
			return err
		}
		source.Pause(ctx, 100*time.Millisecond)
	}
	return nil
}

// session publishes on one connection until it breaks or ctx ends. The error is of the ledger.
func (p *Publisher) session(ctx context.Context) error {
	conn, err := amqp.DialConfig(p.URL, amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		return nil
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }()
	ch, err := conn.Channel()
	if err != nil {
		return nil
	}
	if err := ch.Confirm(false); err != nil {
		return nil
	}
	// The channel is read behind each confirm, and all returns before that confirm are in it then.
	returns := ch.NotifyReturn(make(chan amqp.Return, 4*outstanding))
	closed, gone := context.WithCancel(ctx)
	defer gone()
	ended := ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		for range ended { // closed with the channel
		}
		gone()
	}()
	waiting := make(chan pending, outstanding)
	results := make(chan error, 1)
	go func() { results <- p.results(waiting, returns) }()
	p.publish(closed, ch, waiting)
	close(waiting)
	return <-results
}

func (p *Publisher) publish(ctx context.Context, ch *amqp.Channel, waiting chan<- pending) {
	const tick = 10 * time.Millisecond
	pace := time.NewTicker(tick)
	defer pace.Stop()
	for due := 0.0; ; {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		if p.Hold.Load() {
			continue
		}
		for due += float64(p.Rate) * tick.Seconds(); due >= 1; due-- {
			n := p.draw()
			sent := Sent{ID: n.id(p.Run.ID), At: ledger.Now()}
			confirm, err := ch.PublishWithDeferredConfirm("", p.Run.Queues[n.Queue], true, false, amqp.Publishing{
				MessageId: sent.ID, DeliveryMode: amqp.Persistent, ContentType: "application/json", Body: body(n),
				Headers: amqp.Table{KeyHeader: fmt.Sprint(n.Key)},
			})
			waiting <- pending{sent, confirm}
			if err != nil {
				return
			}
		}
	}
}

// draw returns the next message: the queues take turns, the key is drawn.
func (p *Publisher) draw() Name {
	p.queue = (p.queue + 1) % len(p.next)
	n := Name{Queue: p.queue, Key: p.rng.IntN(p.Run.Keys)}
	n.N = p.next[n.Queue][n.Key]
	p.next[n.Queue][n.Key]++
	return n
}

// results writes down what the broker says about each message, in the order of their publication.
func (p *Publisher) results(waiting <-chan pending, returns <-chan amqp.Return) error {
	var failed error
	returned := map[string]bool{}
	for m := range waiting {
		m.sent.Result = ledger.Unknown
		if m.confirm != nil { // a connection that breaks ends the wait
			limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			if acked, err := m.confirm.WaitContext(limit); err == nil && acked {
				m.sent.Result = ledger.Confirmed
			}
			cancel()
		}
		for n := len(returns); n > 0; n-- {
			r := <-returns
			returned[r.MessageId] = true
		}
		if returned[m.sent.ID] {
			m.sent.Result = ledger.Returned
			delete(returned, m.sent.ID)
		}
		m.sent.Done = ledger.Now()
		if err := p.Log.Write(m.sent); err != nil {
			failed = err
		}
		p.Sent.Add(1)
		if m.sent.Result == ledger.Confirmed {
			p.Confirmed.Add(1)
		}
	}
	return failed
}
