// Package publish is the publisher of a chaos run, in a process of its own. It publishes every message once, mandatory
// and persistent, and records the broker's answer. It never publishes one again: an unknown outcome stays unknown.
package publish

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
	"sidecar/test/chaos/source"
)

// window is how many messages wait for their confirms at most.
const window = 128

// Options of a publisher.
type Options struct {
	Dir      string
	URL      []string // tried in turn
	Exchange string
	Run      ledger.Run
	Canary   string
	Rate     int // messages per second
}

// Publisher publishes the messages of one run in their order.
type Publisher struct {
	o     Options
	log   *ledger.Writer
	limit atomic.Int64 // messages below this one may be published
	done  atomic.Int64 // messages whose result is written down

	mu      sync.Mutex
	ordered []span                       // messages whose plan is not drawn
	waiting map[uint64]*ledger.Published // by delivery tag of the open channel
	byID    map[string]*ledger.Published
	slots   chan struct{}
}

// span is the messages from one up to another, without that one, and the kind of their plan.
type span struct {
	from, to int
	kind     plan.Kind
}

// Run publishes until in ends. Each line of in is a number: messages up to it may be published; the name of a kind of
// plan behind it is for those between the number before and this one. Each line of out is a number: so many have their
// result.
func Run(o Options, in io.Reader, out io.Writer) error {
	p := &Publisher{o: o, slots: make(chan struct{}, window)}
	var err error
	if p.log, err = ledger.Append(o.Dir, ledger.PublishFile); err != nil {
		return err
	}
	ctx := source.Follow(in, out, p.log, &p.done, p.allow)
	next := 0
	for n := 0; ctx.Err() == nil; n++ {
		next = p.session(ctx, o.URL[n%len(o.URL)], next)
	}
	return p.log.Close()
}

// allow lets messages up to n be published.
func (p *Publisher) allow(n int64, kind string) {
	if kind != "" {
		p.mu.Lock()
		p.ordered = append(p.ordered, span{int(p.limit.Load()), int(n), plan.Kind(kind)})
		p.mu.Unlock()
	}
	p.limit.Store(n)
}

// plan of message seq.
func (p *Publisher) plan(seq int) plan.Plan {
	p.mu.Lock()
	i := slices.IndexFunc(p.ordered, func(s span) bool { return seq >= s.from && seq < s.to })
	p.mu.Unlock()
	if i >= 0 {
		return plan.Plan{Kind: p.ordered[i].kind}
	}
	most := 4 // failures of the app's own beside those that faults add
	if seq < p.o.Run.WarmUp {
		most = min(9, p.o.Run.MaxRetries-1)
	}
	return plan.Of(p.o.Run.Seed, seq, most, p.o.Run.Never)
}

// session publishes on one connection from message next on, and returns the first one that was not begun.
func (p *Publisher) session(ctx context.Context, url string, next int) int {
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		source.Pause(ctx, 200*time.Millisecond)
		return next
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		source.Pause(ctx, 200*time.Millisecond)
		return next
	}
	p.mu.Lock()
	p.waiting, p.byID = map[uint64]*ledger.Published{}, map[string]*ledger.Published{}
	p.mu.Unlock()
	var listening sync.WaitGroup
	confirms, returns := ch.NotifyPublish(make(chan amqp.Confirmation, 2*window)),
		ch.NotifyReturn(make(chan amqp.Return, 2*window))
	listening.Go(func() { p.listen(confirms, returns) })
	next = p.publish(ctx, ch, next)
	_ = conn.CloseDeadline(time.Now().Add(time.Second))
	listening.Wait()
	p.abandon()
	return next
}

// publish goes on until something breaks or ctx ends.
func (p *Publisher) publish(ctx context.Context, ch *amqp.Channel, next int) int {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	ctx, broken := context.WithCancelCause(ctx)
	go func() { broken(<-closed) }()
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return next
		case <-pace.C:
		}
		for range max(1, p.o.Rate/100) {
			if int64(next) >= p.limit.Load() {
				break
			}
			select {
			case p.slots <- struct{}{}:
			case <-ctx.Done():
				return next
			}
			if err := p.send(ch, next); err != nil {
				return next + 1
			}
			next++
		}
	}
}

func (p *Publisher) send(ch *amqp.Channel, seq int) error {
	m, msg, err := p.message(seq)
	if err != nil {
		return err
	}
	p.mu.Lock()
	tag := ch.GetNextPublishSeqNo()
	p.waiting[tag], p.byID[m.ID] = m, m
	p.mu.Unlock()
	m.Sent = ledger.Now()
	return ch.PublishWithContext(context.Background(), p.o.Exchange, "chaos", true, false, msg)
}

func (p *Publisher) message(seq int) (*ledger.Published, amqp.Publishing, error) {
	what := p.plan(seq)
	size := 200
	if what.Kind == plan.Large {
		size = plan.LargeBody
	}
	body, err := plan.Body(plan.Head{Run: p.o.Run.ID, Seq: seq, Plan: what.String(), Canary: p.o.Canary}, size)
	if err != nil {
		return nil, amqp.Publishing{}, err
	}
	id := plan.ID(p.o.Run.ID, seq)
	headers := source.Headers(what, id)
	if what.Kind == plan.Hostile {
		headers["x-evil\r\nX-Injected"], headers["content-length"] = "1", int32(5)
	}
	return &ledger.Published{Seq: seq, ID: id, Sum: plan.Sum(body), Plan: what.String()}, amqp.Publishing{
		MessageId: id, CorrelationId: id, ContentType: plan.ContentType, Type: plan.Type, DeliveryMode: amqp.Persistent,
		Body: body, Headers: headers,
	}, nil
}

// listen writes down what the broker says until the channel ends. A returned message is confirmed too, afterwards.
func (p *Publisher) listen(confirms <-chan amqp.Confirmation, returns <-chan amqp.Return) {
	for confirms != nil || returns != nil {
		select {
		case r, ok := <-returns:
			if !ok {
				returns = nil
				continue
			}
			p.returned(r.MessageId)
		case c, ok := <-confirms:
			if !ok {
				confirms = nil
				continue
			}
			for more := true; more; { // returns come first, on another channel
				select {
				case r, ok := <-returns:
					if more = ok; ok {
						p.returned(r.MessageId)
					}
				default:
					more = false
				}
			}
			p.confirmed(c)
		}
	}
}

func (p *Publisher) returned(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.byID[id]; m != nil {
		m.Result = ledger.Returned
	}
}

func (p *Publisher) confirmed(c amqp.Confirmation) {
	p.mu.Lock()
	m := p.waiting[c.DeliveryTag]
	delete(p.waiting, c.DeliveryTag)
	if m != nil {
		delete(p.byID, m.ID)
	}
	p.mu.Unlock()
	if m == nil {
		return
	}
	if m.Result == "" {
		m.Result = ledger.Confirmed
		if !c.Ack {
			m.Result = ledger.Nacked
		}
	}
	p.write(m)
}

// abandon writes down the messages that will never have an outcome.
func (p *Publisher) abandon() {
	p.mu.Lock()
	left := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for _, m := range left {
		m.Result = ledger.Unknown
		p.write(m)
	}
}

func (p *Publisher) write(m *ledger.Published) {
	m.Done = ledger.Now()
	if err := p.log.Write(m); err != nil {
		panic(fmt.Errorf("the ledger cannot be written: %w", err))
	}
	p.done.Add(1)
	<-p.slots
}
