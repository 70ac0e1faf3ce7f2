package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Redrive publishes the selected messages to their queue, or to r.To, and acks each when it is confirmed. The Progress
// returned with an error has been done. It stops at the first failure that would affect the next message too
// (ErrStopped); a message that cannot be published for a reason of its own is counted as failed and stays. When ctx
// ends, it finishes what is under way. It can always be run again: moved messages are gone from the dead-letter queue.
func (q *Queue) Redrive(ctx context.Context, r Redrive, report Report) (Progress, error) {
	if err := q.Check(&r); err != nil {
		return Progress{}, err
	}
	reader, err := q.openRecycled(ctx)
	if err != nil {
		return Progress{}, err
	}
	o := q.operate(reader, r.Selection)
	if r.DryRun || reader.total == 0 {
		return o.run(ctx, report)
	}
	if r.Rate != "" {
		o.rate = rate.NewLimiter(rate.Limit(r.Rate.perSecond()), 1) // time that was lost is not made up for
	}
	s, err := q.sender(ctx)
	if err != nil {
		return Progress{}, errors.Join(err, reader.close())
	}
	defer s.Close()
	if r.Canary > 0 {
		if o.canary, err = q.newCanary(ctx, s.Session, &r); err != nil {
			return Progress{}, errors.Join(fmt.Errorf("ask for verdicts: %w", err), reader.close())
		}
	}
	o.act = func(m *Message) (func() error, error) {
		pub, err := o.redriven(m, &r)
		if err != nil {
			return nil, err
		}
		return s.send(pub)
	}
	progress, err := o.run(ctx, report)
	if r.To != "" && errors.Is(err, broker.ErrUnroutable) {
		err = fmt.Errorf("queue %q does not exist: %w", r.To, err)
	}
	q.metrics.ok.Add(float64(progress.Done))
	q.metrics.failed.Add(float64(progress.Failed))
	return progress, err
}

// redriven makes the publication of one message, with the address for its verdict when it is one of the canary.
func (o *operation) redriven(m *Message, r *Redrive) (*message.Publication, error) {
	how := topology.Redriving{
		By: o.q.o.By, At: time.Now(), Count: m.RedriveCount, Reset: r.Reset, To: string(r.To), Plain: r.Plain,
	}
	if o.canary != nil {
		how.Reply = message.ReplyTo(o.canary.address, strconv.Itoa(o.p.Canary.Sent+1))
	}
	pub, fits := m.plan.RedrivePublication(&m.Properties, how)
	if !fits {
		return nil, errNoRoom
	}
	if o.canary != nil {
		o.add(func(p *Progress) { p.Canary.Sent++ })
	}
	return pub, nil
}

// confirming bounds the wait for one confirm.
const confirming = 30 * time.Second

// errNoRoom: the headers of a message leave no room for those that it needs to be published again.
var errNoRoom = errors.New("no room in its headers")

// sender publishes in a stream, and keeps small messages back to write many at once.
type sender struct {
	*broker.Session
	stream  *broker.Stream
	sent    atomic.Int64 // messages
	flushed int64        // how many of them have been written for certain
}

// sender connects to publish, on a session of its own that must be closed: an alarm blocks a connection that publishes,
// and the acks must go through.
func (q *Queue) sender(ctx context.Context) (*sender, error) {
	s, err := q.dialer.Dial(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := s.Stream(ctx)
	if err != nil {
		s.Close()
		return nil, err
	}
	stream.Gather()
	return &sender{Session: s, stream: stream}, nil
}

// send puts one message into the stream. It is not interrupted by the end of an operation: whether the message has
// arrived must be known. The function it returns waits for the confirm; these are called one after the other.
func (s *sender) send(pub *message.Publication) (confirmed func() error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), confirming)
	defer cancel()
	r, err := s.stream.Send(ctx, pub)
	if err != nil {
		endTry(s.Session, err)
		return nil, err
	}
	n := s.sent.Add(1)
	return func() error {
		if s.flushed < n {
			s.flushed = s.sent.Load()
			s.stream.Flush()
		}
		ctx, cancel := context.WithTimeout(context.Background(), confirming)
		defer cancel()
		return r.Wait(ctx)
	}, nil
}

// endTry ends a dry run that is not answered, and with it the session. It reads the body of its message, which may be a
// file that is unmapped next.
func endTry(s *broker.Session, err error) {
	if late, ok := errors.AsType[*broker.UntriedError](err); ok {
		s.Close()
		<-late.Ended
	}
}

// onlyThisMessage reports whether a publish failed for a reason of this message only.
func onlyThisMessage(err error) bool {
	return errors.Is(err, broker.ErrInvalid) || errors.Is(err, broker.ErrTooLarge) || errors.Is(err, ErrUnread) ||
		errors.Is(err, errNoRoom)
}

type metrics struct{ ok, failed prometheus.Counter }

func newMetrics(r prometheus.Registerer) *metrics {
	v := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_redriven_total",
		Help: "Parked messages moved back into the flow (ok) or left parked because the move failed (failed).",
	}, []string{"result"})
	return &metrics{ok: v.WithLabelValues("ok"), failed: v.WithLabelValues("failed")}
}
