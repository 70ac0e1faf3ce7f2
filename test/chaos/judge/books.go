// Package judge says whether a chaos run lost anything. It reads the ledgers of the run and nothing else; it runs when
// everything has ended.
package judge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	kit "sidecar/internal/testkit/judge"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// Kinds of faults after which a classic queue may lack what was in retry transit.
const (
	brokerKilled = "broker-kill"
	nodeKilled   = "node-kill"
)

// Classes of faults, by what they may excuse.
const (
	ClassSidecar = "S" // an ack can be lost: what was unacked comes again
	ClassApp     = "A" // an attempt can fail that the plan did not fail
	ClassPublish = "P" // a confirm can be lost: a message can be parked twice
	ClassBroker  = "B" // all of that, and what the broker had not synced
	ClassNone    = "N" // nothing: what an operator does must go well
	ClassData    = "D" // a relay's transaction can be lost: what it published it publishes again
)

// margin is how long after a fault its effects may show: the time of an answer, of a settlement, of a redelivery.
const margin = int64(2 * time.Second)

// success is an answer of 2xx.
func success(status int) bool { return status >= 200 && status <= 299 }

// message is all that is known of one.
type message struct {
	kit.Message
	pub      *ledger.Published // nil: it was not published
	plan     plan.Plan
	redriven []int64
	unsure   bool // of a redrive it is unknown whether it happened

	source  plan.Source
	request *ledger.Requested // of a message that was POSTed
	written *ledger.Written   // of a row
	stored  *ledger.Stored    // the row as it was in the end
}

// life is from the first to the last that is known of the message.
func (m *message) life() (from, to int64) {
	from = m.pub.Sent
	to = m.pub.Done
	for i := range m.Receipts {
		to = max(to, m.Receipts[i].At, m.Receipts[i].Done)
	}
	if m.stored != nil {
		to = max(to, m.stored.SentAt)
	}
	return from, to
}

// books are the ledgers of a run, by message.
type books struct {
	run       ledger.Run
	messages  []message
	strangers []string // ids that are none of the run's
	mixed     []string // messages beside others in a request that should have been alone
	faults    []ledger.Fault
	probes    []ledger.Probe
	exits     []ledger.Exit
	resources []ledger.Resources
	stormAt   int64 // when the faults began
	looked    bool  // at the outbox, in the end
}

func open(dir string) (*books, error) {
	b := &books{}
	if err := ledger.ReadJSON(dir, ledger.RunFile, &b.run); err != nil {
		return nil, err
	}
	b.run.Concurrency *= max(1, b.run.Replicas) // of all together
	b.run.Prefetch *= max(1, b.run.Replicas)
	for s := range plan.Sources {
		all := make([]message, b.size(s))
		for i := range all {
			all[i].source = s
		}
		b.messages = append(b.messages, all...)
	}
	for _, read := range []func(string) error{b.published, b.requested, b.written, b.received, b.drained, b.moved,
		b.others} {
		if err := read(dir); err != nil {
			return nil, err
		}
	}
	for i := range b.messages {
		b.messages[i].complete()
	}
	return b, nil
}

// complete is called when all is read. An app that was killed left an answer out of its ledger; what it was is in the
// plan.
func (m *message) complete() {
	slices.SortFunc(m.Receipts, func(x, y kit.Receipt) int { return cmp.Compare(x.At, y.At) })
	tries := 0
	for i := range m.Receipts {
		r := &m.Receipts[i]
		if whole(r) {
			continue
		}
		tries++
		r.MayEnd = success(r.Status) || r.Status == 0 && success(m.plan.Answer(tries).Status)
	}
	if p := m.pub; p != nil {
		m.Name = fmt.Sprintf("message %d (%s)", p.Seq, m.plan)
		m.Sum, m.Mark, m.Confirmed, m.Fails = p.Sum, plan.Mark(p.ID), p.Result == ledger.Confirmed, m.plan.Kind == plan.Never
	}
}

// whole reports whether a receipt is that of a request of several messages that the app failed as a whole. It is no
// attempt of its messages.
func whole(r *kit.Receipt) bool { return r.Kind == kit.Nothing && r.Status != 0 }

// of finds the message of a record; nil, and a note, when it is none of the run's.
func (b *books) of(seq int, id string) *message {
	s, n := plan.SourceOf(seq)
	if seq < 0 || s >= plan.Sources || n >= b.size(s) || id != "" && id != plan.ID(b.run.ID, seq) {
		b.strangers = append(b.strangers, fmt.Sprintf("%q (%d)", id, seq))
		return nil
	}
	for before := range s { // of which each has its messages behind those of the one before
		n += b.size(before)
	}
	return &b.messages[n]
}

// size is how many messages a source has.
func (b *books) size(s plan.Source) int {
	return [...]int{b.run.Messages, b.run.HTTP, b.run.Outbox}[s]
}

func (b *books) published(dir string) error {
	return ledger.Each(dir, ledger.PublishFile, func(p *ledger.Published) error {
		m := b.of(p.Seq, p.ID)
		if m == nil {
			return nil
		}
		return m.publish(p)
	})
}

func (m *message) publish(p *ledger.Published) (err error) {
	m.pub = p
	m.plan, err = plan.Parse(p.Plan)
	return err
}

func (b *books) received(dir string) error {
	open := map[string]ledger.Receipt{}
	err := ledger.Each(dir, ledger.AppFile, func(r *ledger.Receipt) error {
		if r.Status == 0 {
			open[r.Key] = *r
			return nil
		}
		begun, there := open[r.Key]
		if !there {
			return fmt.Errorf("answer %s without a receipt", r.Key)
		}
		delete(open, r.Key)
		b.receipt(&begun, r)
		return nil
	})
	for _, r := range open {
		b.receipt(&r, &ledger.Receipt{})
	}
	return err
}

func (b *books) receipt(begun, answered *ledger.Receipt) {
	if m := b.of(begun.Seq, begun.ID); m != nil {
		r := kit.Receipt{
			At: begun.At, Begun: answered.Begun, Done: answered.At, Attempt: begun.Attempt, Count: begun.Count,
			Status: answered.Status, Of: begun.Of,
			Sum: begun.Sum, Mark: begun.Mark, Odd: begun.Odd, Kind: kit.Failed,
		}
		if begun.Of > 1 && (begun.Again || begun.Count > 0) {
			b.mixed = append(b.mixed, fmt.Sprintf("message %d, delivered again %t, retry count %d, was one of %d in its request",
				begun.Seq, begun.Again, begun.Count, begun.Of))
		}
		switch {
		case begun.Whole:
			r.Kind, r.Status = kit.Nothing, cmp.Or(r.Status, ledger.Aborted)
		case begun.Of > 1 && r.Status == 0:
			r.Kind = kit.Nothing
		case r.Status == 425:
			r.Kind = kit.NotYet
		case success(r.Status) && answered.Error == "":
			r.Kind = kit.Accepted
		}
		m.Receipts = append(m.Receipts, r)
	}
}

func (b *books) drained(dir string) error {
	err := ledger.Each(dir, ledger.ParkedFile, func(p *ledger.Parked) error {
		if m := b.of(p.Seq, p.ID); m != nil {
			m.Parked = append(m.Parked, p)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ledger.Each(dir, ledger.ResidualFile, func(p *ledger.Parked) error {
		if m := b.of(p.Seq, p.ID); m != nil {
			m.Queued++
		}
		return nil
	})
}

func (b *books) moved(dir string) error {
	return ledger.Each(dir, ledger.RedriveFile, func(r *ledger.Redriven) error {
		m := b.of(r.Seq, r.ID)
		switch {
		case m == nil:
		case r.Result == ledger.Confirmed:
			m.redriven = append(m.redriven, r.At)
		case r.Result == ledger.Unknown:
			m.unsure = true
		}
		return nil
	})
}

func (b *books) others(dir string) error {
	return errors.Join(
		collect(dir, ledger.FaultFile, &b.faults), collect(dir, ledger.ProbeFile, &b.probes),
		collect(dir, ledger.ExitFile, &b.exits),
		collect(dir, ledger.ResourceFile, &b.resources),
		ledger.Each(dir, ledger.PhaseFile, func(p *ledger.Phase) error {
			if p.Name == ledger.Storm {
				b.stormAt = p.At
			}
			return nil
		}),
	)
}

func collect[T any](dir, name string, all *[]T) error {
	return ledger.Each(dir, name, func(r *T) error { *all = append(*all, *r); return nil })
}

// during returns the faults of some classes whose window, and the margin after it, overlaps a time.
func (b *books) during(from, to int64, classes string) []*ledger.Fault {
	var all []*ledger.Fault
	for i := range b.faults {
		f := &b.faults[i]
		end := max(f.End, f.Recovered)
		if f.Start <= to && end+margin >= from && slices.Contains([]byte(classes), f.Class[0]) {
			all = append(all, f)
		}
	}
	return all
}

// SidecarEnded is the kind of fault that ends a sidecar in an orderly way and starts another one.
const SidecarEnded = "sidecar-term"
