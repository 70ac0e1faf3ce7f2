package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

const limit = 2

// met returns how many crashes the process has counted for a message, and whether the message would be parked.
func met(p process, m *message.Message) (crashes int, due bool) {
	s := &slot{g: p.Guard, hasher: newHasher()}
	s.identify(m)
	if s.suspect != nil {
		p.suspects = append(p.suspects, s.suspect)
	}
	return m.Crashes, s.proven && m.Crashes >= limit
}

// wantCrashes checks how many crashes a process has counted for a message.
func wantCrashes(t *testing.T, what string, p process, m *message.Message, want int) {
	t.Helper()
	if n, _ := met(p, m); n != want {
		t.Errorf("%s: %d, want %d", what, n, want)
	}
}

// diedWith runs a process that dies with the messages in flight.
func diedWith(t *testing.T, dir string, ids ...string) {
	t.Helper()
	p := begin(t, dir)
	for n, id := range ids {
		p.begin(t, n, arrived(id))
	}
	p.die(t)
}

func TestWhatWasInHandIsSuspected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, dir)
	p.begin(t, 0, arrived("done")).settle(false)
	p.begin(t, 0, arrived("a"))
	p.begin(t, 1, arrived("b"))
	p.die(t)
	p = begin(t, dir)
	for _, c := range []struct {
		m    *message.Message
		want int
	}{
		{redelivered("other"), 0}, {redelivered("done"), 0}, {redelivered("a"), 1}, {redelivered("b"), 1},
		{arrived("a"), 0}, // another message that looks the same: the broker has not delivered it before
	} {
		if n, due := met(p, c.m); n != c.want || due {
			t.Errorf("%s: %d crashes, due %v; want %d, false", c.m.MessageID, n, due, c.want)
		}
	}
	clean := t.TempDir()
	p = begin(t, clean)
	p.begin(t, 0, arrived("a")) // an attempt that ignores its interruption
	p.Close()
	wantCrashes(t, "crashes after a clean end", begin(t, clean), redelivered("a"), 0)
}

// TestTheJournalAloneCounts: without any way to publish the count, and with suspects that outlive several processes.
func TestTheJournalAloneCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	diedWith(t, dir, "a", "b")
	p := begin(t, dir) // dies before anything returns
	p.die(t)
	p = begin(t, dir)
	m := redelivered("a")
	p.begin(t, 0, m)
	if m.Crashes != 1 {
		t.Errorf("%d crashes after the first", m.Crashes)
	}
	p.die(t)
	p = begin(t, dir)
	if n, due := met(p, redelivered("a")); n != 2 || !due {
		t.Errorf("a: %d crashes, due %v, want 2, true", n, due)
	}
	if n, due := met(p, redelivered("b")); n != 1 || due {
		t.Errorf("b: %d crashes, due %v, want 1, false: it was not in flight again", n, due)
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

// TestASuspectIsNotPOSTedBeforeItsCrashIsWritten: while its message is being settled the crash is not counted twice,
// and afterwards only when the message stayed as it was.
func TestASuspectIsNotPOSTedBeforeItsCrashIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	diedWith(t, dir, "a")
	p := begin(t, dir)
	posted := 0
	d := p.Around(answers(func(*message.Message) message.Outcome { posted++; return message.Outcome{Status: 200} }), nil)
	m := redelivered("a")
	o := d.Dispatch(t.Context(), m)
	if m.Crashes != 1 || o.Failure != message.FailureCrash || !o.CrashProven || o.Suspect == nil || posted != 0 {
		t.Fatalf("%d crashes, outcome %+v, posted %d times", m.Crashes, o, posted)
	}
	wantCrashes(t, "crashes while it is being settled", p, redelivered("a"), 0)
	o.Suspect.Settled(true)
	wantCrashes(t, "crashes of a message that stayed", p, redelivered("a"), 1)
	if o = d.Dispatch(t.Context(), redelivered("a")); posted != 1 || o.Status != 200 || o.Suspect == nil {
		t.Fatalf("the count cannot be written: outcome %+v, posted %d times, want once", o, posted)
	}
	o.Suspect.Settled(false)
	p.die(t)
	wantCrashes(t, "crashes after it was acked", begin(t, dir), redelivered("a"), 0)
}

// answers takes the place of the app.
type answers func(m *message.Message) message.Outcome

func (a answers) Dispatch(_ context.Context, m *message.Message) message.Outcome { return a(m) }

func status200(*message.Message) message.Outcome { return message.Outcome{Status: 200} }

// TestAPanicIsACrash that the message alone caused.
func TestAPanicIsACrash(t *testing.T) {
	t.Parallel()
	p := begin(t, t.TempDir())
	panics := true
	d := p.Around(answers(func(*message.Message) message.Outcome {
		if panics {
			panic("a bug")
		}
		return message.Outcome{Status: 425}
	}), nil)
	for n, m := range []*message.Message{arrived("a"), redelivered("a")} {
		o := d.Dispatch(t.Context(), m)
		if o.Failure != message.FailurePanic || !errors.Is(o.Err, ErrFailed) || !o.CrashProven || m.Crashes != n+1 {
			t.Errorf("attempt %d: %d crashes, outcome %+v", n, m.Crashes, o)
		}
		o.Suspect.Settled(true)
	}
	if !strings.Contains(p.log.String(), "a bug") {
		t.Errorf("log: %s", p.log)
	}
	panics = false
	o := d.Dispatch(t.Context(), redelivered("a"))
	o.Suspect.Settled(true)
	wantCrashes(t, "crashes of a message that stayed", p, redelivered("a"), 2)
	if o = d.Dispatch(t.Context(), redelivered("a")); o.CrashProven {
		t.Error("a crash of an attempt without one")
	}
	o.Suspect.Settled(false)
	wantCrashes(t, "crashes after its end", p, redelivered("a"), 0)
}

// add makes a message a suspect.
func (p process) add(t *testing.T, e entry) {
	t.Helper()
	s := p.Guard.add(e)
	if s == nil {
		t.Fatal("no slot")
	}
	s.Settled(true)
}

func TestTheOldestSuspectIsForgotten(t *testing.T) {
	t.Parallel()
	p := begin(t, t.TempDir())
	const room = 64
	for i := range room + 1 {
		p.add(t, entry{crashes: 1, at: now(), id: newHashed(arrived(fmt.Sprint(i)))})
	}
	wantCrashes(t, "crashes of the oldest", p, redelivered("0"), 0)
	wantCrashes(t, "crashes of the next", p, redelivered("1"), 1)
	wantCrashes(t, "crashes of the last", p, redelivered(fmt.Sprint(room)), 1)
}

func TestOldSuspectsAreForgotten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := begin(t, dir)
	id := newHashed(arrived("a"))
	p.add(t, entry{crashes: 1, at: now() - forgetAfter, id: id})
	wantCrashes(t, "crashes of a day ago", p, redelivered("a"), 0)
	p.die(t)
	if p = begin(t, dir); len(p.suspects) != 0 {
		t.Error("still in the journal of the next process")
	}
}

// newHashed is the identity of a message.
func newHashed(m *message.Message) identity {
	x := newHasher()
	return x.identify(m)
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	x := newHasher()
	id := x.identify(arrived("a"))
	back := arrived("a") // from the retry queue
	back.Headers, back.RetryCount, back.Redelivered = amqp.Table{"x-death": "…"}, 3, true
	if x.identify(back) != id {
		t.Error("the message is another one when it returns")
	}
	long := arrived("a")
	long.Body = make([]byte, 1<<20)
	same := x.identify(long)
	for what, change := range map[string]func(*message.Message){
		"end of the body":  func(m *message.Message) { m.Body[len(m.Body)-1] = 1 },
		"length":           func(m *message.Message) { m.Body = m.Body[1:] },
		"content encoding": func(m *message.Message) { m.ContentEncoding = "gzip" },
		"priority":         func(m *message.Message) { m.Priority = 1 },
	} {
		other := *long
		other.Body = bytes.Clone(long.Body)
		if change(&other); x.identify(&other) == same {
			t.Errorf("another %s, same identity", what)
		}
	}
}

func TestAloneMeansAlone(t *testing.T) {
	t.Parallel()
	turns := newExclusive()
	first, err := turns.enter(t.Context(), nil, 1)
	if err != nil || !turns.solitary(first) {
		t.Fatalf("the first turn: %v", err)
	}
	alone := make(chan uint64)
	go func() {
		x, _ := turns.enter(context.Background(), nil, maxSlots)
		alone <- x
	}()
	for !turns.waited() {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	for _, weight := range []int64{maxSlots, 1} {
		if _, err := turns.enter(ctx, nil, weight); !errors.Is(err, stop) {
			t.Errorf("a turn before the suspect that waits: %v", err)
		}
	}
	turns.leave(1)
	x := <-alone
	if _, err := turns.enter(ctx, nil, 1); !errors.Is(err, stop) {
		t.Errorf("a turn beside the suspect: %v", err)
	}
	if !turns.solitary(x) {
		t.Error("not solitary")
	}
	turns.leave(maxSlots)
	a, _ := turns.enter(t.Context(), nil, 1)
	b, _ := turns.enter(t.Context(), nil, 1)
	if turns.solitary(a) || turns.solitary(b) {
		t.Error("two are solitary")
	}
}

// waited reports whether a suspect waits for its turn, or has it.
func (t *exclusive) waited() bool {
	free := t.turns.TryAcquire(1)
	if free {
		t.turns.Release(1)
	}
	return !free
}

func TestCrashesOfTheApp(t *testing.T) {
	t.Parallel()
	p := begin(t, t.TempDir())
	gone, beside := true, false
	d := p.Around(answers(func(*message.Message) message.Outcome {
		if beside { // an attempt that began and ended meanwhile may have caused the crash
			p.begin(t, 1, arrived("b")).settle(false)
		}
		return message.Outcome{Failure: message.FailureReset}
	}), func(context.Context) bool { return gone })
	for _, c := range []struct {
		gone, beside bool
		crashes      int
		proven       bool
	}{{true, false, 1, true}, {true, true, 1, false}, {false, false, 0, false}} {
		gone, beside = c.gone, c.beside
		m := arrived("a")
		if o := d.Dispatch(t.Context(), m); m.Crashes != c.crashes || o.CrashProven != c.proven || o.Failure != message.FailureReset {
			t.Errorf("%+v: %d crashes, outcome %+v", c, m.Crashes, o)
		}
	}
}

// TestALostDeliveryIsNotPOSTed: it waited for its turn until its session had ended.
func TestALostDeliveryIsNotPOSTed(t *testing.T) {
	t.Parallel()
	p := begin(t, t.TempDir())
	first := p.begin(t, 0, arrived("a"))
	d := p.Around(answers(func(*message.Message) message.Outcome {
		t.Error("POSTed")
		return message.Outcome{}
	}), nil)
	m, lost := arrived("b"), make(chan struct{})
	m.Headers, m.Lost = amqp.Table{message.HeaderCrashes: int32(1)}, lost
	got := make(chan message.Outcome)
	go func() { got <- d.Dispatch(context.Background(), m) }()
	for !p.exclusive.waited() {
		runtime.Gosched()
	}
	close(lost)
	first.settle(false)
	if o := <-got; o.Failure != message.FailureUndispatched {
		t.Errorf("outcome %+v", o)
	}
	if o := d.Dispatch(t.Context(), m); o.Failure != message.FailureUndispatched || p.exclusive.waited() {
		t.Errorf("lost before its turn: outcome %+v, the turn is kept: %v", o, p.exclusive.waited())
	}
}
