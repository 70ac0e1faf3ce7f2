// Package crash remembers which messages were in hand when the process died, so that a message that kills the sidecar
// or its app over and over can be told from those that were merely near it. It counts and isolates; what becomes of a
// message is decided elsewhere. It talks to no broker and no app.
//
// A worker writes down what it begins and wipes it out when it knows the verdict. What a journal still says at the next
// start was in hand when the process died: those messages are suspects. When one comes back its crash is counted, and
// from then on it is handled alone, so that the next crash has one suspect only.
package crash

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// forgetAfter is how long a suspect is remembered that does not come back, in seconds: another replica may have had it.
const forgetAfter = 24 * 3600

// Options of a Guard.
type Options struct {
	Dir     string // of the journal
	Queue   string // whose messages they are
	Limit   int    // crashes after which a message is due to be parked, at least 1
	Workers int    // messages in hand at once
	Logger  *slog.Logger
}

// Guard is the memory of one process.
type Guard struct {
	o       Options
	journal *journal
	turns   turns
	told    atomic.Int64 // when a failed write was last logged, in seconds since 1970

	mu       sync.Mutex
	suspects []suspect // oldest first
	room     []int     // slots of the journal for further suspects
}

type suspect struct {
	entry
	slot int
}

// Open takes a journal and reads what the last process left in it. It is an error when there can be no journal. One that
// cannot be written, as on a full disk, is not: then crashes are counted as far as this process remembers.
func Open(o Options) (*Guard, error) {
	j, said, err := openJournal(o.Dir, o.Queue)
	if err != nil {
		return nil, fmt.Errorf("open a crash journal: %w", err)
	}
	g := &Guard{o: o, journal: j}
	room := min(max(4*o.Workers, 64), maxSlots-o.Workers)
	left := suspectsOf(said, room)
	for i := range left {
		g.suspects = append(g.suspects, suspect{left[i], o.Workers + i})
	}
	for slot := o.Workers + len(left); slot < o.Workers+room; slot++ {
		g.room = append(g.room, slot)
	}
	g.report(j.begin(o.Workers, room, left))
	if n := inHandOf(said); n > 0 {
		o.Logger.Warn("crash", "queue", o.Queue, "suspects", n, "limit", o.Limit)
	}
	return g, nil
}

func inHandOf(said []entry) (n int) {
	for _, e := range said {
		if e.state == inHand {
			n++
		}
	}
	return n
}

// suspectsOf makes suspects of what was in hand, beside those from before; the newest room of them.
func suspectsOf(said []entry, room int) []entry {
	alone := inHandOf(said) == 1
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

// Close says that the process ends in good order: what is in hand goes back and is nobody's fault.
func (g *Guard) Close() {
	for slot := range g.o.Workers {
		g.report(g.journal.free(slot))
	}
	_ = g.journal.f.Close()
}

// claim takes a suspect out of the list; its slot stays written until it is resolved.
func (g *Guard) claim(id identity) (suspect, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, s := range g.suspects {
		if s.id == id && now()-s.at < forgetAfter {
			g.suspects = slices.Delete(g.suspects, i, i+1)
			return s, true
		}
	}
	return suspect{}, false
}

// suspect remembers e, forgetting the oldest when there is no room.
func (g *Guard) suspect(e entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.room) == 0 {
		if len(g.suspects) == 0 {
			return // all of them are being dealt with
		}
		g.room = append(g.room, g.suspects[0].slot)
		g.suspects = slices.Delete(g.suspects, 0, 1)
	}
	s := suspect{e, g.room[len(g.room)-1]}
	g.room = g.room[:len(g.room)-1]
	s.state = suspected
	g.suspects = append(g.suspects, s)
	g.report(g.journal.write(s.slot, &s.entry, new([unit]byte)))
}

// resolve ends a claim: the suspect is forgotten, or goes back into the list.
func (g *Guard) resolve(s suspect, forget bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !forget {
		g.suspects = append(g.suspects, s)
		return
	}
	g.room = append(g.room, s.slot)
	g.report(g.journal.free(s.slot))
}

// report tells that a write failed, once a minute at most. A message whose place in the journal could not be written is
// handled all the same: a crash over it is not counted.
func (g *Guard) report(err error) {
	if err == nil || errors.Is(err, os.ErrClosed) {
		return
	}
	last := g.told.Load()
	if at := now(); at-last >= 60 && g.told.CompareAndSwap(last, at) {
		g.o.Logger.Error("crash journal not written", "queue", g.o.Queue, "error", err)
	}
}
