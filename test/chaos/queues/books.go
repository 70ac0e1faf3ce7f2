package queues

import (
	"cmp"
	"fmt"
	"slices"

	kit "sidecar/internal/testkit/judge"
	"sidecar/test/chaos/ledger"
)

// SentFile is the publisher's ledger; the others have the names that they have in every storm.
const SentFile = ledger.PublishFile

func open(dir string) (*books, error) {
	b := &books{}
	if err := ledger.ReadJSON(dir, ledger.RunFile, &b.run); err != nil {
		return nil, err
	}
	b.messages = make([][][]*message, len(b.run.Queues))
	for i := range b.messages {
		b.messages[i] = make([][]*message, b.run.Keys)
	}
	for _, read := range []func(string) error{b.published, b.received, b.parked, b.others} {
		if err := read(dir); err != nil {
			return nil, err
		}
	}
	for _, queue := range b.messages {
		for _, key := range queue {
			for _, m := range key {
				b.complete(m)
			}
		}
	}
	return b, nil
}

// of returns the message of an id; nil, and a note, if it is not of this run.
func (b *books) of(id string) *message {
	n, ok := nameOf(b.run.ID, id)
	if !ok || min(n.Queue, n.Key, n.N) < 0 || n.Queue >= len(b.messages) || n.Key >= b.run.Keys || n.N > 10_000_000 {
		b.strangers = append(b.strangers, fmt.Sprintf("message %q is not of this run", id))
		return nil
	}
	key := &b.messages[n.Queue][n.Key]
	for len(*key) <= n.N {
		name := Name{n.Queue, n.Key, len(*key)}
		*key = append(*key, &message{name: name, Message: kit.Message{Name: "message " + name.id(b.run.ID)}})
	}
	return (*key)[n.N]
}

// complete is called when all is read.
func (b *books) complete(m *message) {
	m.plan = plan(b.run.Seed, m.name)
	last := m.plan[len(m.plan)-1].status
	m.Fails = last < 200 || last > 299
	if m.sent != nil {
		m.Confirmed = m.sent.Result == ledger.Confirmed
		if m.Confirmed {
			m.Since = m.sent.Done
		}
	}
	slices.SortFunc(m.Receipts, func(x, y kit.Receipt) int { return cmp.Compare(x.At, y.At) })
	for i := range m.Receipts { // an app that was killed left an answer out of its ledger
		r := &m.Receipts[i]
		r.MayEnd = r.Status == 200 || r.Status == 0 && m.plan[min(i, len(m.plan)-1)].status == 200
	}
}

func (b *books) published(dir string) error {
	return ledger.Each(dir, SentFile, func(s *Sent) error {
		if m := b.of(s.ID); m != nil {
			m.sent = s
		}
		return nil
	})
}

func (b *books) received(dir string) error {
	open := map[string]*Receipt{}
	err := ledger.Each(dir, ledger.AppFile, func(r *Receipt) error {
		if r.Status == 0 {
			open[r.Call] = r
			return nil
		}
		begun := open[r.Call]
		if begun == nil {
			return fmt.Errorf("answer %s without a receipt", r.Call)
		}
		delete(open, r.Call)
		b.receipt(begun, r)
		return nil
	})
	for _, r := range open {
		b.receipt(r, &Receipt{})
	}
	return err
}

func (b *books) receipt(begun, answered *Receipt) {
	m := b.of(begun.ID)
	if m == nil {
		return
	}
	if want := b.run.Names[m.name.Queue]; begun.Path != want {
		b.strangers = append(b.strangers, fmt.Sprintf("%s reached the path %q instead of %q", m.Name, begun.Path, want))
	}
	r := kit.Receipt{At: begun.At, Begun: answered.Begun, Done: answered.At, Attempt: begun.Attempt, Count: begun.Count,
		Status: answered.Status, Kind: kit.Failed}
	switch {
	case r.Status == 425:
		r.Kind = kit.NotYet
	case r.Status == 200 && answered.Error == "":
		r.Kind = kit.Accepted
	}
	m.Receipts = append(m.Receipts, r)
}

// parked reads the messages that were in the queues at the end of the run.
func (b *books) parked(dir string) error {
	err := ledger.Each(dir, ledger.ParkedFile, func(p *ledger.Parked) error {
		if m := b.of(p.ID); m != nil {
			m.Parked = append(m.Parked, p)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ledger.Each(dir, ledger.ResidualFile, func(p *ledger.Parked) error {
		if m := b.of(p.ID); m != nil {
			m.Queued++
		}
		return nil
	})
}

func (b *books) others(dir string) (err error) {
	if b.faults, err = all[Fault](dir, ledger.FaultFile); err != nil {
		return err
	}
	if b.probes, err = all[ledger.Probe](dir, ledger.ProbeFile); err != nil {
		return err
	}
	b.exits, err = all[ledger.Exit](dir, ledger.ExitFile)
	return err
}

// all returns the records of a file.
func all[T any](dir, name string) (list []T, err error) {
	err = ledger.Each(dir, name, func(r *T) error { list = append(list, *r); return nil })
	return list, err
}
