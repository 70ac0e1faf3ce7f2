package topology

import (
	"cmp"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Found is what a broker has of a plan: the properties of the exchanges and queues that exist and could be compared, by
// name. Arguments keep their AMQP names, see the Property constants for the others.
type Found struct {
	Exchanges, Queues map[string]amqp.Table

	// NewQuorum says that the broker makes a quorum queue of a declaration that names no type.
	NewQuorum bool

	// By title: Unseen exist, and the user may not compare them; Barred do not exist and cannot be declared.
	Unseen, Barred map[string]bool

	Major int // version of the broker; 0: unknown
}

// cautiousRequeues is how often a message may be given back to a queue whose delivery limit is the broker's own, which
// is 20, or unknown. A message that reaches the limit is dropped or dead-lettered without a reason.
const cautiousRequeues = brokersLimit / 2

// AsFound returns the plan that uses what exists as it is, and how that differs from p. It is p, without a copy, where
// nothing differs. Objects that do not exist stay as planned, and only these may be declared.
//
// A retry queue with another delay is left alone: it goes on returning what waits in it, and retries wait in a queue
// beside it that is named with the delay. So that queue may have to be inspected too: call AsFound again with it. Where
// it cannot be declared, retries wait with the delay of the existing queue.
func (p *Plan) AsFound(f Found) (*Plan, []Difference) {
	c := p.clone()
	c.Adopts = true
	own := f.Queues[p.Queue]
	switch {
	case own != nil && p.AutoType:
		c.setType(own[ArgType] == TypeQuorum)
	case f.NewQuorum && p.AutoType:
		c.setType(true)
	}
	c.besideOwnDelays(f)
	all := c.besideChangedDelays(f)
	differences, unseen := c.adoptExchanges(f)
	all = append(all, differences...)
	for i := range c.Queues {
		q := &c.Queues[i]
		if seen := f.Queues[q.Name]; seen != nil && q.Found == nil {
			all = append(all, c.compareQueue(q, seen, f.Major)...)
		}
		q.Unseen = f.Unseen[q.Title()]
		unseen = unseen || q.Unseen
	}
	c.RequeueLimit = c.requeueLimit(own, f.Major)
	if q := c.OwnQueue(); q.Unseen {
		c = c.Cautious()
		if c.SingleActive {
			f := property{plan: c, queue: q, name: ArgSingleConsumer, wanted: true}
			f.value = "not seen without configure permission"
			all = append(all, f.judge())
		}
	}
	if len(all) == 0 && !unseen && c.Quorum == p.Quorum && c.RequeueLimit == p.RequeueLimit {
		return p, nil
	}
	return c, all
}

// adoptExchanges takes the exchanges as they exist, and returns how they differ and whether one of them is not seen.
func (p *Plan) adoptExchanges(f Found) (all []Difference, unseen bool) {
	for i := range p.Exchanges {
		x := &p.Exchanges[i]
		if seen := f.Exchanges[x.Name]; seen != nil {
			differences := property{plan: p, exchange: x, all: seen}.differences(x.Properties())
			if len(differences) > 0 {
				x.Found, all = seen, append(all, differences...)
			}
		}
		x.Unseen = x.Type != "" && f.Unseen[x.Title()]
		unseen = unseen || x.Unseen
	}
	return all, unseen
}

func (p *Plan) compareQueue(q *Queue, seen amqp.Table, major int) []Difference {
	differences := property{plan: p, queue: q, all: seen, major: major}.differences(q.Properties())
	if len(differences) == 0 {
		return nil
	}
	q.Found = seen
	if q.Name == p.Queue && !q.rejectsAsPlanned() || q.Kind == KindRetry && q.full() {
		p.publishRetries()
	}
	return differences
}

// rejectsAsPlanned reports whether a reject on the queue as it was found goes where it was planned, and as safely.
func (q *Queue) rejectsAsPlanned() bool {
	f := q.Found
	safely := q.Args[ArgStrategy] == nil || f[ArgType] != TypeQuorum || atLeastOnce(f)
	return safely && f[ArgDLX] == q.Args[ArgDLX] && f[ArgDLKey] == q.Args[ArgDLKey]
}

// full reports whether the queue, as it was found, can be full and then drop what is dead-lettered to it.
func (q *Queue) full() bool { return q.Found[argMaxLength] != nil || q.Found[argMaxBytes] != nil }

// besideChangedDelays adds a queue with the planned delay beside every retry queue that exists with another one. The
// exchange must route by key, and an old queue that does not return its messages must not be where redriven ones wait.
func (p *Plan) besideChangedDelays(f Found) []Difference {
	var all []Difference
	for i := range p.Waits {
		w := &p.Waits[i]
		old := p.queue(w.Queue)
		if old == nil || old.Kind == KindMain || old.Beside {
			continue
		}
		seen := f.Queues[w.Queue]
		name := w.Queue + "." + w.Tier()
		x := p.exchange(w.Exchange)
		switch {
		case seen == nil || seen[ArgTTL] == old.Args[ArgTTL], x != nil && x.Type != "direct",
			nameFault(name) != "" || p.queue(name) != nil, p.Redrive.Queue == w.Queue && !returnsAll(old, seen):
			continue
		}
		d := Difference{
			Object: old.Title(), Name: old.Name, Property: ArgTTL, Wanted: old.Args[ArgTTL], Found: seen[ArgTTL],
			Judgement: Harmless, Reason: "it stays and returns what waits in it; retries wait in " + name + " instead",
		}
		if ttl, ok := seen[ArgTTL].(int64); ok && ttl > 0 && f.Barred[QueueTitle(name)] {
			p.keepDelay(&d, w, old, ttl, name)
			all = append(all, d)
			continue
		}
		beside := *old
		beside.Name, beside.Args, beside.Beside = name, maps.Clone(old.Args), true
		old.Found = seen
		if !returnsAll(old, seen) {
			d.Judgement, d.Reason = Weaker, "retries wait in "+name+" instead; messages that are in it may not return"
		}
		all = append(all, d)
		if w.Exchange != "" {
			p.Bindings = append(p.Bindings, Binding{Exchange: w.Exchange, Key: name, Queue: name})
		}
		w.Queue, w.Key, w.By = name, name, ByPublish
		p.Queues = slices.Insert(p.Queues, 0, beside)
	}
	slices.SortStableFunc(p.Waits, func(a, b WaitPath) int { return cmp.Compare(a.Delay, b.Delay) })
	return all
}

// keepDelay lets retries wait with the delay of an existing queue, ttl in ms, because the queue for the planned delay
// cannot be declared.
func (p *Plan) keepDelay(d *Difference, w *WaitPath, old *Queue, ttl int64, beside string) {
	d.Judgement, d.Fix = Weaker, "let "+beside+" be declared"
	d.Reason = "retries wait that long, because " + beside + " does not exist and this user may not declare it"
	w.Delay = time.Duration(ttl) * time.Millisecond
	old.Args = maps.Clone(old.Args)
	old.Args[ArgTTL] = ttl
	if !p.Tiered {
		d.Fix = p.Say("set {retry-delay} to ") + w.Tier() + ", or " + d.Fix
	}
}

// returnsAll reports whether a retry queue as it was found returns everything to where it was planned.
func returnsAll(q *Queue, f amqp.Table) bool {
	return f[ArgTTL] != nil && f[ArgDLX] == q.Args[ArgDLX] && f[ArgDLKey] == q.Args[ArgDLKey] && f[argExpires] == nil &&
		f[PropertyAutoDelete] == false
}

// requeueLimit is Plan.RequeueLimit for the service's queue as it was found; nil: it is missing or could not be
// compared.
func (p *Plan) requeueLimit(own amqp.Table, major int) int {
	limit, finite := own[ArgDeliveryLimit].(int64)
	switch {
	case p.DelaysItself(): // it counts only what is rejected or lost
		return 0
	case own == nil, own[ArgType] != TypeQuorum:
		return p.RequeueLimit
	case finite && limit >= 0 && limit < NoDeliveryLimit:
		return int(min(max(limit/2, 1), cautiousRequeues)) // waiting in the broker costs little after ten returns
	case own[ArgDeliveryLimit] == nil && major != 3: // the broker's own
		return cautiousRequeues
	}
	return 0
}

// Cautious returns a copy of p for a service's queue of which nothing is known: it may have a delivery limit or another
// type, and what a reject on it leads to may not be there.
func (p *Plan) Cautious() *Plan {
	c := p.WithoutReject()
	c.RequeueLimit = cautiousRequeues
	for i := range c.Queues {
		c.Queues[i].Unseen = c.Queues[i].Unseen || c.Queues[i].Kind == KindMain
	}
	return c
}

// MaxHeld is the longest Attempt for every queue: by itself the broker takes a message away that is unsettled for
// brokersPatience. Only a consumer of a quorum queue of RabbitMQ 4.3 can ask for more.
const (
	MaxHeld         = 25 * time.Minute
	brokersPatience = 30 * time.Minute
)

// ConsumerTimeout is how long the broker has to wait for the settlement of a delivery that waits for so many attempts
// before its own; 0: the service's queue does not take that.
func (p *Plan) ConsumerTimeout(before int) time.Duration {
	own := p.OwnQueue()
	if own.asFound()[ArgType] != TypeQuorum || own.Unseen && p.Attempt <= MaxHeld {
		return 0
	}
	n := min(time.Duration(before)+1, maxTTL/max(p.Attempt, 1))
	return max(brokersPatience, n*p.Attempt)
}

// asFound are the arguments of a queue that is used.
func (q *Queue) asFound() amqp.Table {
	if q.Found != nil {
		return q.Found
	}
	return q.Args
}

// setType makes all queues quorum queues, or classic ones.
func (p *Plan) setType(quorum bool) {
	p.Quorum = quorum
	for i := range p.Queues {
		q := &p.Queues[i]
		args := amqp.Table{}
		maps.Copy(args, q.Args)
		for _, arg := range []string{ArgType, ArgDeliveryLimit, ArgStrategy, ArgOverflow} {
			delete(args, arg)
		}
		if q.Name == p.Queue {
			maps.Copy(args, p.arguments)
		}
		if q.Args = args; quorum {
			q.makeQuorum()
		}
	}
}

// makeQuorum adds what keeps the messages of a quorum queue: no limit on deliveries, and dead letters that stay until
// their target has confirmed them, which the broker only does together with reject-publish.
func (q *Queue) makeQuorum() {
	q.Args[ArgType] = TypeQuorum
	if q.Kind != KindRetry && q.Args[ArgDeliveryLimit] == nil {
		q.Args[ArgDeliveryLimit] = NoDeliveryLimit
	}
	if _, _, deadLetters := q.DeadLetter(); deadLetters {
		q.Args[ArgStrategy], q.Args[ArgOverflow] = strategyAtLeastOnce, overflowReject
	}
}
