package crash

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// met is what a fresh process says about a message.
func met(p process, m *message.Message) (crashes int, due bool) {
	w := p.Watch(0)
	w.Meet(m)
	defer w.Leave(true)
	return m.Crashes, w.Due(m)
}

// wantCrashes checks how many crashes a process has counted for a message.
func wantCrashes(t *testing.T, what string, p process, m *message.Message, want int) {
	t.Helper()
	if n, _ := met(p, m); n != want {
		t.Errorf("%s: %d, want %d", what, n, want)
	}
}

// diedWith runs a process that dies with the messages in hand.
func diedWith(t *testing.T, dir string, ids ...string) {
	t.Helper()
	p := begin(t, dir)
	for n, id := range ids {
		p.enter(t, n, arrived(id))
	}
	p.die(t)
}

func TestWhatWasInHandIsSuspected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	diedWith(t, dir, "a", "b")
	p := begin(t, dir)
	for _, c := range []struct {
		m    *message.Message
		want int
	}{
		{redelivered("other"), 0}, {redelivered("a"), 1}, {redelivered("b"), 1},
		{arrived("a"), 0}, // another message that looks the same: the broker has not delivered it before
	} {
		if n, due := met(p, c.m); n != c.want || due {
			t.Errorf("%s: %d crashes, due %v; want %d, false", c.m.MessageID, n, due, c.want)
		}
	}
}

func TestWhatIsDoneIsNotSuspected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, dir)
	p.enter(t, 0, arrived("a")).Leave(false)
	p.die(t)
	p = begin(t, dir)
	if n, _ := met(p, redelivered("a")); n != 0 || len(p.suspects) != 0 {
		t.Errorf("%d crashes, want 0", n)
	}
}

func TestACleanEndSuspectsNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, dir)
	p.enter(t, 0, arrived("a")) // whatever does not let go
	p.Close()
	wantCrashes(t, "crashes after a clean end", begin(t, dir), redelivered("a"), 0)
}

// TestTheJournalAloneCounts: without any way to publish the count, and with suspects that outlive several processes.
func TestTheJournalAloneCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	diedWith(t, dir, "a", "b")
	p := begin(t, dir) // dies before anything comes back
	p.die(t)
	p = begin(t, dir)
	m := redelivered("a")
	p.enter(t, 0, m)
	if m.Crashes != 1 {
		t.Errorf("%d crashes after the first", m.Crashes)
	}
	p.die(t)
	p = begin(t, dir)
	if n, due := met(p, redelivered("a")); n != 2 || !due {
		t.Errorf("a: %d crashes, due %v, want 2, true", n, due)
	}
	if n, due := met(p, redelivered("b")); n != 1 || due {
		t.Errorf("b: %d crashes, due %v, want 1, false: it was not in hand again", n, due)
	}
}

// TestACrashWithCompanyIsNotEnough: the neighbours of a message that kills must not go with it.
func TestACrashWithCompanyIsNotEnough(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	diedWith(t, dir, "a", "b")
	m := redelivered("a")
	m.Headers = amqp.Table{message.HeaderCrashes: int32(7)}
	if n, due := met(begin(t, dir), m); n != 8 || due {
		t.Errorf("%d crashes, due %v; want 8, false", n, due)
	}
}

func TestAClaimThatFailedComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	diedWith(t, dir, "a")
	p := begin(t, dir)
	for _, replaced := range []bool{false, true} {
		w := p.Watch(0)
		m := redelivered("a")
		w.Meet(m)
		c := w.Claim()
		if m.Crashes != 1 || c == nil {
			t.Fatalf("%d crashes, claim %v", m.Crashes, c)
		}
		w.Leave(false)
		wantCrashes(t, "crashes while claimed: it would be counted twice", p, redelivered("a"), 0)
		c.Done(replaced)
	}
	p.die(t)
	wantCrashes(t, "crashes after the copy took its place", begin(t, dir), redelivered("a"), 0)
	(*Claim)(nil).Done(true)
}

func TestWhatComesBackKeepsItsCrashes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, dir)
	w := p.enter(t, 0, arrived("a"))
	w.Panicked(arrived("a"))
	w.Leave(true)
	w = p.enter(t, 0, redelivered("a"))
	if w.Unwritten() != 1 {
		t.Errorf("%d crashes unwritten after a panic, want 1", w.Unwritten())
	}
	w.Leave(true) // 425, say
	wantCrashes(t, "crashes after it came back", p, redelivered("a"), 1)
	p.enter(t, 0, redelivered("a")).Leave(false)
	wantCrashes(t, "crashes after its end", p, redelivered("a"), 0)
}

func TestTheOldestSuspectIsForgotten(t *testing.T) {
	t.Parallel()
	p := begin(t, t.TempDir())
	const room = 64
	for i := range room + 1 {
		p.suspect(entry{crashes: 1, at: now(), id: p.Watch(0).hasher.identify(arrived(fmt.Sprint(i)))})
	}
	if n, _ := met(p, redelivered("0")); n != 0 {
		t.Errorf("the oldest has %d crashes", n)
	}
	for _, id := range []string{"1", fmt.Sprint(room)} {
		if n, _ := met(p, redelivered(id)); n != 1 {
			t.Errorf("%s has %d crashes, want 1", id, n)
		}
	}
}

func TestOldSuspectsAreForgotten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, dir)
	id := p.Watch(0).hasher.identify(arrived("a"))
	p.suspect(entry{crashes: 1, at: now() - forgetAfter, id: id})
	wantCrashes(t, "crashes of a day ago", p, redelivered("a"), 0)
	p.die(t)
	if p = begin(t, dir); len(p.suspects) != 0 {
		t.Error("still in the journal of the next process")
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	x := newHasher()
	id := x.identify(arrived("a"))
	back := arrived("a") // from the retry queue
	back.Exchange, back.RoutingKey, back.HasOriginal, back.OriginalExchange, back.OriginalRoutingKey = "", "q", true, "e", "k"
	back.Headers, back.RetryCount, back.Redelivered = amqp.Table{"x-death": "…"}, 3, true
	if x.identify(back) != id {
		t.Error("the message is another one when it comes back")
	}
	other := arrived("a")
	other.Body = []byte("b")
	if x.identify(other) == id {
		t.Error("another body, same identity")
	}
	long := arrived("a")
	long.Body = make([]byte, hashed+1)
	longer := arrived("a")
	longer.Body = make([]byte, hashed+2)
	if x.identify(long) == x.identify(longer) {
		t.Error("another length, same identity")
	}
}

func TestAloneMeansAlone(t *testing.T) {
	t.Parallel()
	var turns turns
	first, err := turns.enter(t.Context(), false)
	if err != nil || !turns.solitary(first) {
		t.Fatalf("the first turn: %v", err)
	}
	alone := make(chan turn)
	go func() {
		x, _ := turns.enter(context.Background(), true)
		alone <- x
	}()
	for turns.wanted() == 0 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	for _, want := range []bool{true, false} {
		if _, err := turns.enter(ctx, want); !errors.Is(err, stop) {
			t.Errorf("a turn before whoever waits to be alone: %v", err)
		}
	}
	turns.leave()
	x := <-alone
	if _, err := turns.enter(ctx, false); !errors.Is(err, stop) {
		t.Errorf("a turn beside whoever is alone: %v", err)
	}
	if !turns.solitary(x) {
		t.Error("not solitary")
	}
	turns.leave()
	a, _ := turns.enter(t.Context(), false)
	b, _ := turns.enter(t.Context(), false)
	if turns.solitary(a) || turns.solitary(b) {
		t.Error("two are solitary")
	}
}

func (t *turns) wanted() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

func TestCrashesOfTheApp(t *testing.T) {
	t.Parallel()
	p := begin(t, t.TempDir())
	m := arrived("a")
	w := p.enter(t, 0, m)
	w.AppCrashed(m)
	if m.Crashes != 1 || w.Due(m) {
		t.Errorf("%d crashes, due %v; want 1, false", m.Crashes, w.Due(m))
	}
	w.AppCrashed(m)
	if !w.Due(m) {
		t.Error("not due after the second of two")
	}
	w.Leave(false)

	w = p.enter(t, 0, arrived("a"))
	p.enter(t, 1, arrived("b")).Leave(false) // came and went, and may have done it
	w.AppCrashed(m)
	if w.Due(m) {
		t.Error("due though it had company")
	}
	w.Leave(false)
}
