package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Redrive publishes the selected messages to their queue and acks each when it is confirmed. The Progress returned with
// an error has been done. It stops at the first failure that would affect the next message too (ErrStopped); a message
// that cannot be published for a reason of its own is counted as failed and stays. When ctx ends, it finishes what is
// under way. It can always be run again: moved messages are gone from the dead-letter queue.
func (q *Queue) Redrive(ctx context.Context, r Redrive, report Report) (Progress, error) {
	ctx, stop := withoutDeadline(ctx)
	defer stop()
	if err := r.check(); err != nil {
		return Progress{}, err
	}
	unlock, err := q.lock(ctx, false)
	if err != nil {
		return Progress{}, err
	}
	defer unlock()
	w, err := q.openRecycled(ctx)
	if err != nil {
		return Progress{}, err
	}
	v := operation{q: q, w: w, s: r.Selection, dry: r.DryRun, pace: newRateLimit(r.Rate), log: q.o.Logger}
	if r.DryRun || w.total == 0 {
		v.dry = true
		return v.run(ctx, report)
	}
	stream, stop, err := q.stream(ctx)
	if err != nil {
		return Progress{}, errors.Join(err, w.close())
	}
	defer stop()
	if r.Canary > 0 {
		if v.canary, err = q.newCanary(ctx, &r); err != nil {
			return Progress{}, errors.Join(err, w.close())
		}
		defer v.canary.s.Close()
	}
	v.act = func(m *Message) (func() (func() error, error), bool) {
		pub, ok := q.redriven(&r, v.canary, m)
		return func() (func() error, error) { return send(stream, pub) }, ok
	}
	progress, err := v.run(ctx, report)
	q.metrics.ok.Add(float64(progress.Done))
	q.metrics.failed.Add(float64(progress.Failed))
	return progress, err
}

// redriven makes the publication of one message.
func (q *Queue) redriven(r *Redrive, c *canary, m *Message) (pub *broker.Publication, ok bool) {
	how := topology.Redriving{By: q.o.By, At: time.Now(), Count: m.RedriveCount, Reset: r.Reset}
	if c != nil {
		how.Reply = c.next(m)
	}
	var received message.Message
	received.FromDelivery(&m.Properties, q.o.Plan.Queue, q.o.Plan.MaxRetries)
	pub, fits := q.o.Plan.RedrivePublication(&received, how)
	if !fits {
		q.o.Logger.Warn("parked message not moved", "reason", "no room in its headers", "queue", q.name,
			"message_id", m.MessageID)
		if how.Reply != "" {
			c.unsend()
		}
		return nil, false
	}
	return pub, true
}

func (r *Redrive) check() error {
	switch {
	case r.Limit < 0:
		return fmt.Errorf("%w: limit %d is negative", ErrInvalid, r.Limit)
	case r.Canary < 0:
		return fmt.Errorf("%w: canary %d is negative", ErrInvalid, r.Canary)
	case r.Canary > MaxCanary:
		return fmt.Errorf("%w: canary %d is more than %d", ErrInvalid, r.Canary, MaxCanary)
	case r.Rate < 0 || math.IsNaN(r.Rate) || math.IsInf(r.Rate, 0) || r.Rate > 0 && r.Rate < minRate:
		return fmt.Errorf("%w: rate %v per second is not one", ErrInvalid, r.Rate)
	}
	return nil
}

// minRate is one message an hour.
const minRate = 1.0 / 3600

// ParseRate reads "20/s", "100/m", "50/h" or "20", which is per second. The error is ErrInvalid and names s.
func ParseRate(s string) (perSecond float64, err error) {
	text, unit, _ := strings.Cut(s, "/")
	per, ok := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !ok || !(n/per >= minRate) || math.IsInf(n, 0) || strings.HasSuffix(s, "/") {
		return 0, fmt.Errorf("%w: rate %.40q: want messages per second, minute or hour, such as 20/s or 100/m", ErrInvalid, s)
	}
	return n / per, nil
}
