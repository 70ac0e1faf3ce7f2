package sim

import (
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"sidecar/internal/consume"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// mutants are sidecars with one bug each, and the invariants of which one has to notice. What a wrong sidecar would
// have sent is made of what the right one sends.
var mutants = map[string]struct {
	bug    bug
	caught []string
}{
	"takes a redirect for success":         {bug{dispatcher: dispatches(func(o *message.Outcome) { accept(o, 300, 399) })}, []string{"I2"}},
	"loses the answer":                     {bug{dispatcher: dispatches(func(o *message.Outcome) { accept(o, 500, 599) })}, []string{"I2"}},
	"counts an app that is down":           {bug{dispatcher: dispatches(countRefused)}, []string{"I4", "I5", "I7"}},
	"posts again after a reset":            {bug{dispatcher: postAgain}, []string{"I5"}},
	"acks before the POST":                 {bug{tamper: always(autoAck)}, []string{"I1", "I2"}},
	"acks past what is unfinished":         {bug{tamper: always(ackMultiple)}, []string{"I1", "I2", "I6"}},
	"acks on the next session":             {bug{tamper: staleAcks}, []string{"I1", "I2", "I5", "I6"}},
	"dead-letters what it should requeue":  {bug{tamper: always(nackWithout)}, []string{"I4", "I5", "I7"}},
	"acks what it should give back":        {bug{tamper: always(ackInstead)}, []string{"I1", "I2"}},
	"publishes without mandatory":          {bug{tamper: always(notMandatory)}, []string{"I1", "I2"}},
	"does not wait for the confirm":        {bug{publisher: unconfirmed}, []string{"I1", "I2"}},
	"writes a wrong status when it parks":  {bug{publisher: publishes(wrongStatus)}, []string{"I4"}},
	"publishes another body":               {bug{publisher: publishes(otherBody)}, []string{"I3"}},
	"forgets to count":                     {bug{publisher: publishes(uncounted)}, []string{"I5", "I9"}},
	"tries once more than it should":       {bug{plan: func(p *topology.Plan) { p.MaxRetries++ }}, []string{"I4", "I5"}},
	"counts a batch that failed":           {bug{batches: batches(countWhole)}, []string{"I5", "I7"}},
	"takes a result for that of another":   {bug{batches: batches(offByOne)}, []string{"I2"}},
	"leaves out a message of a batch":      {bug{batches: batches(leaveOut)}, []string{"I2"}},
	"has a retry queue that leads nowhere": {bug{plan: deadEnd}, []string{"I1"}},
}

// TestMutantsAreCaught: a judge that never fails is worth nothing.
func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(mutants))
	if !*all {
		rand.New(rand.NewPCG(*first, 0)).Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:mutantsPerRun]
	}
	for _, name := range names {
		m := mutants[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 300; seed++ {
				j := judged(t, seed, m.bug, silent)
				for _, line := range j.lines {
					if invariant, _, _ := strings.Cut(line, " "); slices.Contains(m.caught, invariant) {
						t.Logf("seed %d: %s", seed, line)
						return
					}
				}
			}
			t.Errorf("not caught by %v", m.caught)
		})
	}
}

type dispatcher func(context.Context, *message.Message) message.Outcome

func (d dispatcher) Dispatch(ctx context.Context, m *message.Message) message.Outcome {
	return d(ctx, m)
}

type publisher func(context.Context, *message.Publication) error

func (p publisher) Publish(ctx context.Context, pub *message.Publication) error { return p(ctx, pub) }

func dispatches(change func(*message.Outcome)) func(consume.Dispatcher) consume.Dispatcher {
	return func(real consume.Dispatcher) consume.Dispatcher {
		return dispatcher(func(ctx context.Context, m *message.Message) message.Outcome {
			o := real.Dispatch(ctx, m)
			change(&o)
			return o
		})
	}
}

func accept(o *message.Outcome, from, to int) {
	if o.Disposition == message.DispositionNone && o.Status >= from && o.Status <= to {
		o.Status = 200
	}
}

func countRefused(o *message.Outcome) {
	if o.Failure == message.FailureRefused {
		o.Failure = message.FailureReset
	}
}

func postAgain(real consume.Dispatcher) consume.Dispatcher {
	return dispatcher(func(ctx context.Context, m *message.Message) message.Outcome {
		o := real.Dispatch(ctx, m)
		if o.Failure == message.FailureReset {
			return real.Dispatch(ctx, m)
		}
		return o
	})
}

type batcher struct {
	consume.BatchDispatcher

	change func(whole *message.Outcome, each []message.Outcome, n int) []message.Outcome
}

func (b batcher) DispatchBatch(ctx context.Context, ms []*message.Message, trace message.TraceContext) (message.Outcome, []message.Outcome) {
	whole, each := b.BatchDispatcher.DispatchBatch(ctx, ms, trace)
	return whole, b.change(&whole, each, len(ms))
}

func batches(change func(*message.Outcome, []message.Outcome, int) []message.Outcome) func(consume.BatchDispatcher) consume.BatchDispatcher {
	return func(real consume.BatchDispatcher) consume.BatchDispatcher { return batcher{real, change} }
}

func countWhole(whole *message.Outcome, each []message.Outcome, n int) []message.Outcome {
	if each == nil && whole.Failure != message.FailureRefused && whole.Failure != message.FailureInterrupted {
		return slices.Repeat([]message.Outcome{*whole}, n)
	}
	return each
}

func offByOne(_ *message.Outcome, each []message.Outcome, _ int) []message.Outcome {
	if len(each) > 0 {
		return append(each[1:], each[0])
	}
	return nil
}

// leaveOut is content with the last message of a batch that failed.
func leaveOut(whole *message.Outcome, each []message.Outcome, n int) []message.Outcome {
	all := countWhole(whole, each, n)
	if each == nil && all != nil {
		for i := range all {
			all[i] = message.Outcome{Disposition: message.DispositionRequeue, RetryAfter: -1}
		}
		all[n-1] = message.Outcome{Status: 200, RetryAfter: -1}
	}
	return all
}

func publishes(change func(*message.Publication)) func(consume.Publisher) consume.Publisher {
	return func(real consume.Publisher) consume.Publisher {
		return publisher(func(ctx context.Context, p *message.Publication) error {
			c := *p
			c.Msg.Headers = maps.Clone(p.Msg.Headers)
			change(&c)
			return real.Publish(ctx, &c)
		})
	}
}

func wrongStatus(p *message.Publication) {
	if p.Msg.Headers["x-final-status-code"] != nil {
		p.Msg.Headers["x-final-status-code"] = int32(200)
	}
}

func otherBody(p *message.Publication) { p.Msg.Body = append([]byte("x"), p.Msg.Body...) }

func uncounted(p *message.Publication) {
	if p.Kind == message.KindRetry {
		delete(p.Msg.Headers, message.HeaderRetryCount)
	}
}

// unconfirmed is content when it has sent the message off.
func unconfirmed(real consume.Publisher) consume.Publisher {
	return publisher(func(ctx context.Context, p *message.Publication) error {
		_ = real.Publish(ctx, p)
		return nil
	})
}

func deadEnd(p *topology.Plan) {
	for i, q := range p.Queues {
		if q.Kind == topology.KindRetry {
			p.Queues[i].Args = maps.Clone(q.Args)
			delete(p.Queues[i].Args, "x-dead-letter-exchange")
			delete(p.Queues[i].Args, "x-dead-letter-routing-key")
			delete(p.Queues[i].Args, "x-dead-letter-strategy")
			delete(p.Queues[i].Args, "x-overflow")
		}
	}
}

// Frames end with their mark; the flags of these methods are right before it, or after two short strings.
func flags(frame []byte) *byte { return &frame[len(frame)-2] }

func autoAck(frame []byte) []byte {
	switch class, id := method(frame); {
	case class == 60 && id == 20: // consume: two short strings behind the reserved number
		at := 7 + 4 + 2
		at += 1 + int(frame[at])
		at += 1 + int(frame[at])
		frame[at] |= 2
	case class == 60 && (id == 80 || id == 120):
		return nil // nothing is left to settle
	}
	return frame
}

func ackMultiple(frame []byte) []byte {
	if class, id := method(frame); class == 60 && id == 80 {
		*flags(frame) |= 1
	}
	return frame
}

func nackWithout(frame []byte) []byte {
	if class, id := method(frame); class == 60 && id == 120 {
		*flags(frame) &^= 2
	}
	return frame
}

// ackInstead makes an ack of every nack that gives a message back.
func ackInstead(frame []byte) []byte {
	if class, id := method(frame); class == 60 && id == 120 && *flags(frame)&2 != 0 {
		binary.BigEndian.PutUint16(frame[9:], 80)
		*flags(frame) = 0
	}
	return frame
}

func notMandatory(frame []byte) []byte {
	if class, id := method(frame); class == 60 && id == 40 {
		*flags(frame) &^= 1
	}
	return frame
}

func always(change func([]byte) []byte) func() func([]byte) []byte {
	return func() func([]byte) []byte { return change }
}

// staleAcks sends the last ack of a session once more on the next one, as a client does that revives channels.
func staleAcks() func([]byte) []byte {
	var mu sync.Mutex
	var last, stale []byte
	return func(frame []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		switch class, id := method(frame); {
		case class == 60 && id == 20:
			stale, last = last, nil
		case class == 60 && id == 80:
			last = slices.Clone(frame)
			if stale != nil {
				copy(stale[1:3], frame[1:3]) // the channel
				frame, stale = append(stale, frame...), nil
			}
		}
		return frame
	}
}
