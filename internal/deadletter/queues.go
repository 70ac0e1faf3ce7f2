package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/topology"
)

// Owner is a subscription whose messages are parked in a queue. Its name is "" when there is no other.
type Owner struct {
	Name string
	Plan *topology.Plan
}

// Queues are the dead-letter queues of a sidecar, each once, also when subscriptions share it.
type Queues []*Queue

// New returns the queues that owners park in; none if they park in none. It does not connect.
func New(o Options, owners ...Owner) (all Queues) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Broker.Patience = callPatience
	o.Broker.MemoryPatience = time.Second
	o.Broker.Registerer = nil // connections for single operations are not worth a log line
	m := newMetrics(o.Registerer)
	for _, owner := range owners {
		name := owner.Plan.Park.Queue
		switch i := slices.IndexFunc(all, func(q *Queue) bool { return q.name == name }); {
		case name == "":
		case i >= 0:
			all[i].Owners, all[i].several = append(all[i].Owners, owner), true
		default:
			all = append(all, &Queue{o: o, name: name, Owners: []Owner{owner}, dialer: broker.NewDialer(o.Broker),
				metrics: m, hold: holding, pause: lockPause})
		}
	}
	return all
}

// plan returns the plan whose queue it is: of several owners that of the first.
func (q *Queue) plan() *topology.Plan { return q.Owners[0].Plan }

// Of returns the queue of one subscription, without the messages of all others; "" returns all queues.
func (qs Queues) Of(name string) (Queues, error) {
	if name == "" {
		return qs, nil
	}
	for _, q := range qs {
		if i := slices.IndexFunc(q.Owners, func(o Owner) bool { return o.Name == name }); i >= 0 {
			one := *q
			one.Owners, one.narrow = q.Owners[i:i+1], true
			return Queues{&one}, nil
		}
	}
	return nil, fmt.Errorf("%w %.100q; the names are: %s", ErrNoSubscription, name, strings.Join(qs.Subscriptions(), ", "))
}

// Only returns the queue if there is one; ErrInvalid if there are several.
func (qs Queues) Only() (*Queue, error) {
	if len(qs) > 1 {
		return nil, fmt.Errorf("%w: this is for one dead-letter queue: choose the subscription, one of %s "+
			"(--subscription, over HTTP ?subscription=)",
			ErrInvalid, strings.Join(qs.Subscriptions(), ", "))
	}
	return qs[0], nil
}

// Name returns the names of the queues, separated by commas.
func (qs Queues) Name() string {
	names := make([]string, len(qs))
	for i, q := range qs {
		names[i] = q.name
	}
	return strings.Join(names, ", ")
}

// Subscriptions returns the names of those that park in the queues.
func (qs Queues) Subscriptions() (names []string) {
	for _, q := range qs {
		for _, owner := range q.Owners {
			if owner.Name != "" {
				names = append(names, owner.Name)
			}
		}
	}
	return names
}

// Browse is Queue.Browse of one queue after the other. The bounds are for each.
func (qs Queues) Browse(ctx context.Context, f Filter, s Scan, visit func(*Message) error) (sum Progress, err error) {
	for i := 0; i < len(qs) && err == nil; i++ {
		var one Progress
		one, err = qs[i].Browse(ctx, f, s, nil, visit)
		sum.Total, sum.Scanned, sum.Matched = sum.Total+one.Total, sum.Scanned+one.Scanned, sum.Matched+one.Matched
	}
	return sum, err
}

// Groups counts what fails in the same way in each subscription, the largest group first.
func (qs Queues) Groups(ctx context.Context, f Filter, s Scan) ([]*Group, Progress, error) {
	g := grouping{byID: map[string]*Group{}, all: []*Group{}}
	sum, err := qs.Browse(ctx, f, s, func(m *Message) error {
		g.add(m)
		return nil
	})
	slices.SortStableFunc(g.all, func(a, b *Group) int { return cmp.Compare(b.Count, a.Count) })
	return g.all, sum, err
}

// Find is Queue.Find in the first queue that has the message.
func (qs Queues) Find(ctx context.Context, id string, maxBody int) (found *Full, more int, err error) {
	for _, q := range qs {
		if found, more, err = q.Find(ctx, id, maxBody); !errors.Is(err, ErrNotFound) {
			break
		}
	}
	return found, more, err
}
