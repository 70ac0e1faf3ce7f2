// Package source is the common part of the sources of a chaos run: each is a process of its own that gets the number of
// messages it may send, and reports the number it has sent.
package source

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/test/chaos/plan"
)

// Failures is how often a message fails by its plan before it succeeds, in the storm. Faults add more.
const Failures = 4

// Syncer makes a ledger survive the machine.
type Syncer interface{ Sync() error }

// Gate hands out the numbers of messages. It is safe for concurrent use.
type Gate struct {
	limit atomic.Int64 // numbers below this one may be handed out
	done  atomic.Int64 // numbers whose result is written down

	atOnce chan Span

	mu   sync.Mutex
	skip []Span // that went to atOnce
	next int
	due  time.Time // when the next one may be handed out
	rate int
	rng  *rand.Rand
}

// Span is the messages from one to another, without that one.
type Span struct{ From, To int }

// AtOnce follows a limit: the messages between the limit before and this one are sent at once, whatever else is
// under way.
const AtOnce = "at-once"

// Open reads limits from in, one number a line, and writes how many messages are done to out. The context ends with in.
func Open(seed uint64, rate int, in io.Reader, out io.Writer, log Syncer) (context.Context, *Gate) {
	g := &Gate{atOnce: make(chan Span, 100), rate: max(1, rate), rng: rand.New(rand.NewPCG(seed, uint64(rate)))}
	return Follow(in, out, log, &g.done, g.allow), g
}

func (g *Gate) allow(limit int64, what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if what == AtOnce {
		s := Span{int(g.limit.Load()), int(limit)}
		g.skip = append(g.skip, s)
		g.atOnce <- s
	}
	g.limit.Store(limit)
}

// AtOnce are the messages that are to be sent at once.
func (g *Gate) AtOnce() <-chan Span { return g.atOnce }

// Follow is Open for a source that counts by itself: allow gets each limit, and the rest of its line.
func Follow(in io.Reader, out io.Writer, log Syncer, done *atomic.Int64,
	allow func(limit int64, what string)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for s := bufio.NewScanner(in); s.Scan(); {
			limit, what, _ := strings.Cut(s.Text(), " ")
			if n, err := strconv.ParseInt(limit, 10, 64); err == nil {
				allow(n, what)
			}
		}
	}()
	go func() {
		for ctx.Err() == nil {
			_, _ = fmt.Fprintln(out, done.Load())
			_ = log.Sync()
			Pause(ctx, 50*time.Millisecond)
		}
	}()
	return ctx
}

// Take waits for the next numbers, as many as draw wants or fewer when the limit is near: from to to, without to. false
// when ctx has ended. It is the only one to draw at that time.
func (g *Gate) Take(ctx context.Context, draw func(*rand.Rand) int) (from, to int, ok bool) {
	for ctx.Err() == nil {
		if from, to, wait := g.take(draw); to > from {
			Pause(ctx, wait)
			return from, to, true
		}
		Pause(ctx, 10*time.Millisecond)
	}
	return 0, 0, false
}

func (g *Gate) take(draw func(*rand.Rand) int) (from, to int, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.skip) > 0 && g.skip[0].From == g.next {
		g.next, g.skip = g.skip[0].To, g.skip[1:]
	}
	limit := int(g.limit.Load())
	if len(g.skip) > 0 {
		limit = g.skip[0].From
	}
	if g.next >= limit {
		return 0, 0, 0
	}
	from = g.next
	to = min(limit, from+max(1, draw(g.rng)))
	g.next = to
	now := time.Now()
	if g.due.Before(now) {
		g.due = now
	}
	wait = g.due.Sub(now)
	g.due = g.due.Add(time.Duration(to-from) * time.Second / time.Duration(g.rate))
	return from, to, wait
}

// Done says that n more messages have their result.
func (g *Gate) Done(n int) { g.done.Add(int64(n)) }

// Plan of message n of a source, and the body that carries it.
func Plan(s plan.Source, run string, seed uint64, n, never int, canary string) (what plan.Plan, body []byte,
	err error) {
	seq := s.Seq(n)
	what = plan.Of(seed, seq, Failures, never)
	size := 200
	if what.Kind == plan.Large {
		size = plan.LargeBody
	}
	body, err = plan.Body(plan.Head{Run: run, Seq: seq, Plan: what.String(), Canary: canary}, size)
	return what, body, err
}

// Headers of a message, of AMQP types that JSON has too. Those of a hostile plan try to become HTTP headers.
func Headers(what plan.Plan, id string) map[string]any {
	headers := map[string]any{plan.HeaderPlan: what.String(), plan.HeaderMark: plan.Mark(id)}
	if what.Kind == plan.Hostile {
		headers["x-evil"] = "a\r\nX-Injected: 1"
		headers["authorization"], headers["host"], headers["content-length"] = "Bearer x", "evil.example", 5
		headers["expect"], headers["transfer-encoding"], headers["x-forwarded-for"] = "100-continue", "chunked", "10.0.0.1"
	}
	return headers
}

// Pause waits.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
