// Package crash counts the crashes of the app and of the sidecar that each message was part of, in a journal that
// outlives the process. It is a decorator of the dispatcher: it adds facts to the outcome of an attempt and decides
// nothing. It does not talk to the broker.
//
// The journal holds the messages that are being POSTed. A message that it still holds at the next start was being
// POSTed when the process died: it is a suspect. When a suspect is delivered again its crash is counted, and from then
// on it is POSTed alone, so that the next crash has one suspect only.
package crash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"sidecar/internal/telemetry"
)

// forgetAfter is how long a suspect that is not delivered again is remembered, in seconds: another replica may have it.
const forgetAfter = 24 * 3600

// Options of a Guard.
type Options struct {
	Dir     string // of the journal
	Queue   string // of the messages
	Limit   int    // crashes after which a message is due to be parked, at least 1
	Workers int    // attempts at once
	Logger  *slog.Logger
}

// Guard is the journal of one process, and its suspects. It counts the crashes around the attempts of another
// dispatcher, at most Options.Workers at a time.
type Guard struct {
	o         Options
	next      Next
	appGone   func(ctx context.Context) bool
	slots     chan *slot // that no dispatch uses
	journal   *journal
	exclusive *exclusive
	failed    telemetry.Throttle // log lines about failed writes

	mu       sync.Mutex
	suspects []*suspect // whose messages are not being handled, oldest first
	room     []int      // slots of the journal for further suspects
}

// suspect is a message with crashes that its headers do not say. It implements message.Suspect.
type suspect struct {
	entry
	g          *Guard
	slot       int
	unwritable bool // its message was delivered without the new count: the count cannot be published
}

// Settled ends the settlement of the message. One that stays in its queue as it is keeps its crashes in the journal:
// the count could not be published.
func (s *suspect) Settled(stays bool) {
	if !stays {
		s.g.forget(s)
		return
	}
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.unwritable = true
	s.g.suspects = append(s.g.suspects, s)
}

// Open opens a journal and reads what the last process left in it. A journal that cannot be written later, as on a full
// disk, is logged: then crashes are counted only while this process runs.
func Open(o Options) (*Guard, error) {
	j, said, err := openJournal(o.Dir, o.Queue)
	if err != nil {
		return nil, fmt.Errorf("open a crash journal: %w", err)
	}
	g := &Guard{
		o: o, journal: j, slots: make(chan *slot, o.Workers), exclusive: newExclusive(),
		failed: telemetry.Throttle{Interval: time.Minute},
	}
	for n := range o.Workers {
		g.slots <- &slot{g: g, number: n, hasher: newHasher()}
	}
	room := min(max(4*o.Workers, 64), maxSlots-o.Workers)
	died := 0
	for _, e := range said {
		if e.state == inHand {
			died++
		}
	}
	left := suspectsOf(said, died == 1, room)
	for i := range left {
		g.suspects = append(g.suspects, &suspect{entry: left[i], g: g, slot: o.Workers + i})
	}
	for slot := o.Workers + len(left); slot < o.Workers+room; slot++ {
		g.room = append(g.room, slot)
	}
	g.report(j.reset(o.Workers, room, left))
	if died > 0 {
		o.Logger.Warn("crash", "suspects", died, "limit", o.Limit)
	}
	return g, nil
}

// suspectsOf makes suspects of the attempts that were under way, beside the earlier suspects; at most room, the newest.
func suspectsOf(said []entry, alone bool, room int) []entry {
	var left []entry
	for _, e := range said {
		if e.state == inHand {
			e.state, e.alone, e.at = suspected, alone, now()
			e.crashes++
		}
		if now()-e.at < forgetAfter {
			left = append(left, e)
		}
	}
	slices.SortStableFunc(left, func(a, b entry) int { return int(a.at - b.at) })
	return left[max(0, len(left)-room):]
}

// Close ends the journal of a process that stops in good order: no message is a suspect because of it.
func (g *Guard) Close() {
	for slot := range g.o.Workers {
		g.report(g.journal.clear(slot))
	}
	_ = g.journal.f.Close()
}

// takeSuspect takes a suspect out of the list; its slot stays written until its message is POSTed or settled. nil means
// that the message is not a suspect.
func (g *Guard) takeSuspect(id identity) *suspect {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.suspects, func(s *suspect) bool { return s.id == id && now()-s.at < forgetAfter })
	if i < 0 {
		return nil
	}
	s := g.suspects[i]
	g.suspects = slices.Delete(g.suspects, i, i+1)
	return s
}

// add writes e into a slot for suspects, in place of the oldest when none is left; nil means that all of them belong to
// messages that are being handled. The suspect is not in the list before its message is settled.
func (g *Guard) add(e entry) *suspect {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.room) == 0 {
		if len(g.suspects) == 0 {
			return nil
		}
		g.room = append(g.room, g.suspects[0].slot)
		g.suspects = slices.Delete(g.suspects, 0, 1)
	}
	e.state = suspected
	s := &suspect{entry: e, g: g, slot: g.room[len(g.room)-1]}
	g.room = g.room[:len(g.room)-1]
	g.report(g.journal.write(s.slot, &s.entry, new([unit]byte)))
	return s
}

// forget clears the slot of a suspect that was taken.
func (g *Guard) forget(s *suspect) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.room = append(g.room, s.slot)
	g.report(g.journal.clear(s.slot))
}

// report logs a failed write. The message is handled all the same: a crash over it is not counted.
func (g *Guard) report(err error) {
	if err == nil || errors.Is(err, os.ErrClosed) {
		return
	}
	g.failed.Do(func(suppressed int) {
		g.o.Logger.Error("crash journal not written", "error", err, "suppressed", suppressed)
	})
}
