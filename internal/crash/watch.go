package crash

import (
	"context"

	"sidecar/internal/message"
)

// Watch is one worker's view of the guard. It has one message at a time: Meet, then Enter and Leave, or Claim. It is
// not for concurrent use.
type Watch struct {
	g      *Guard
	slot   int
	hasher hasher
	buf    [unit]byte

	now     entry // what the slot says, or would say
	turn    turn
	entered bool
	sure    bool // the last crash was this message's and nobody else's
	claim   suspect
	claimed bool
}

// Watch returns the view of worker n, counted from 0 and below Options.Workers.
func (g *Guard) Watch(n int) *Watch { return &Watch{g: g, slot: n, hasher: newHasher()} }

// Meet looks a message up that was delivered just now and sets m.Crashes: those the message itself knows of and those
// that only the journal does. Only a message that the broker has delivered before, or that comes back from the retry
// queue with a count, can be a suspect.
func (w *Watch) Meet(m *message.Message) {
	w.now = entry{state: inHand, id: w.hasher.identify(m)}
	w.sure = false
	m.Crashes = message.Crashes(m.Headers)
	if !m.Redelivered && m.Crashes == 0 {
		return
	}
	if w.claim, w.claimed = w.g.claim(w.now.id); w.claimed {
		w.now.crashes, w.sure = w.claim.crashes, w.claim.alone
		m.Crashes += int(w.claim.crashes)
	}
}

// Unwritten is how many crashes the message itself does not know of yet.
func (w *Watch) Unwritten() int { return int(w.now.crashes) }

// Due reports whether the message is to be parked: it has seen as many crashes as are allowed, and there is no doubt
// about the last one. After a crash with company it gets another try, alone.
func (w *Watch) Due(m *message.Message) bool { return m.Crashes >= w.g.o.Limit && w.sure }

// Enter waits for the message's turn and writes it down. The error is the cause of ctx; then nothing was begun.
func (w *Watch) Enter(ctx context.Context, m *message.Message) error {
	t, err := w.g.turns.enter(ctx, m.Crashes > 0)
	if err != nil {
		return err
	}
	w.turn, w.entered = t, true
	w.now.at = now()
	w.g.report(w.g.journal.write(w.slot, &w.now, &w.buf))
	w.drop(true) // the worker's slot says it now
	return nil
}

// AppCrashed counts a crash of the app over the message in hand.
func (w *Watch) AppCrashed(m *message.Message) {
	m.Crashes++
	w.sure = w.entered && w.g.turns.solitary(w.turn)
}

// Panicked counts a failure of the sidecar over the message in hand, which there is no doubt about.
func (w *Watch) Panicked(m *message.Message) {
	m.Crashes++
	w.now.crashes++
	w.sure = true
}

// Leave ends the message's turn, if it had one: the verdict is known. When the message comes back as it is, what only
// the journal knows of it is kept.
func (w *Watch) Leave(comesBack bool) {
	keep := comesBack && w.now.crashes > 0
	if keep {
		w.now.alone, w.now.at = w.sure, now()
		w.g.suspect(w.now)
	}
	w.drop(keep)
	w.now.crashes = 0
	if !w.entered {
		return
	}
	w.entered = false
	w.g.report(w.g.journal.free(w.slot))
	w.g.turns.leave()
}

// drop resolves the claim that the watch holds, if any.
func (w *Watch) drop(forget bool) {
	if w.claimed {
		w.claimed = false
		w.g.resolve(w.claim, forget)
	}
}

// Claim hands the suspicion over to whoever publishes the message anew, with its count; nil when there is none.
func (w *Watch) Claim() *Claim {
	if !w.claimed {
		return nil
	}
	w.claimed, w.now.crashes = false, 0
	return &Claim{w.g, w.claim}
}

// Claim is a suspicion whose message is being replaced by a copy that knows of it.
type Claim struct {
	g *Guard
	s suspect
}

// Done says whether the copy took the message's place. If it did not, the message comes back as it is. A nil Claim does
// nothing.
func (c *Claim) Done(replaced bool) {
	if c != nil {
		c.g.resolve(c.s, replaced)
	}
}
