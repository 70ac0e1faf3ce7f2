package consume

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"sidecar/internal/memory"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// A delivery that finished before an earlier one waits for it, so that one frame can ack both, but not for long: it
// holds a prefetch slot, and would be delivered again if the connection broke now. headPatience is how long the head
// may stay where it is before all acks behind it are sent singly. While the head moves, an ack behind it waits for at
// most maxTicks times as long. A head that is in a batch moves only when the whole batch has its answer. Acks of
// batches are many, and to find the delivery of a single one the broker searches all that are older and not acked.
const (
	headPatience  = 5 * time.Millisecond
	batchPatience = 500 * time.Millisecond
	maxTicks      = 20
)

// acker is the part of a subscription that settles.
type acker interface {
	Ack(tag uint64, multiple bool) error
	Requeue(tag uint64) error
	Reject(tag uint64) error
	Delay(tag uint64) error
}

// ending is the settlement of one delivery.
type ending struct {
	tag    uint64
	since  uint32 // the tick in which the window got it
	action message.Action
	reason message.Reason
	final  topology.Final

	known   memory.Known
	outcome *message.Outcome // see lasting
}

// returns reports whether the broker delivers the message again.
func (e *ending) returns() bool {
	return e.final == topology.FinalRequeue || e.final == topology.FinalDelay
}

// settler is the one goroutine that settles for one session. Acks are coalesced: all that are ready when no further
// ending waits leave in one frame. It runs until every delivery of its session has ended, also when the session has
// ended long before: late settlements fail on the dead channel and are counted as stale.
type settler struct {
	acker   acker
	window  *window
	memory  *memory.Session
	endings chan ending
	metrics *metrics
	ordered bool        // messages are given back by closing the channel, and acks leave in the order of their tags
	timer   *time.Timer // of patience
	armed   bool
	head    uint64 // of the window when the timer was set
	done    chan struct{}

	patience time.Duration // headPatience or batchPatience
}

func newSettler(a acker, prefetch int, m *metrics, known *memory.Session) *settler {
	s := &settler{
		acker: a, window: newWindow(prefetch), memory: known, metrics: m,
		endings: make(chan ending, min(prefetch, 1024)), done: make(chan struct{}),
		timer: time.NewTimer(time.Hour), patience: headPatience,
	}
	s.timer.Stop()
	return s
}

// patience is how long a head may stay where it is.
func (c *Consumer) patience() time.Duration {
	if c.o.Batch.Size > 1 {
		return batchPatience
	}
	return headPatience
}

// run settles until endings is closed, then flushes the rest.
func (s *settler) run() {
	defer close(s.done)
	for {
		select {
		case e, ok := <-s.endings:
			if !ok {
				s.flushPrefix()
				s.flushBehind(0)
				return
			}
			s.take(e)
			s.takeWaiting()
			// Let the workers that have their answers hand them in first: one frame then settles them all. Without a worker that
			// is ready to run this returns at once.
			runtime.Gosched()
			s.takeWaiting()
			s.flush()
		case <-s.timer.C:
			s.tick()
		}
	}
}

// tick sends the acks that have waited behind the head for too long.
func (s *settler) tick() {
	s.armed = false
	s.flushPrefix()
	s.window.tick++
	age := uint32(maxTicks)
	if s.window.head == s.head {
		age = 0
	}
	s.flushBehind(age)
	if len(s.window.pending) > 0 {
		s.arm()
	}
}

func (s *settler) arm() {
	s.armed, s.head = true, s.window.head
	s.timer.Reset(s.patience)
}

// takeWaiting takes the endings that wait, at most a window of them: a flood must not postpone the flush.
func (s *settler) takeWaiting() {
	for range s.window.prefetch {
		select {
		case e, ok := <-s.endings:
			if !ok {
				return // run sees it next
			}
			s.take(e)
		default:
			return
		}
	}
}

func (s *settler) take(e ending) {
	var err error
	switch {
	case e.final == topology.FinalAck:
		s.window.ack(e)
		return
	case e.final == topology.FinalRequeue && s.ordered: // unfinished: no ack may pass over it
		s.count(nil, e)
		return
	case e.final == topology.FinalRequeue:
		err = s.acker.Requeue(e.tag)
	case e.final == topology.FinalDelay:
		err = s.acker.Delay(e.tag)
	default:
		err = s.acker.Reject(e.tag)
	}
	s.window.finish(e.tag)
	s.count(err, e)
}

func (s *settler) flush() {
	s.flushPrefix()
	if s.window.crowded() {
		s.flushSingly(s.window.excess())
	}
	switch {
	case len(s.window.pending) == 0:
		if s.armed {
			s.armed = false
			s.timer.Stop()
		}
	case !s.armed:
		s.arm()
	}
}

func (s *settler) flushPrefix() {
	last, taken := s.window.prefix()
	if len(taken) == 0 {
		return
	}
	err := s.acker.Ack(last, len(taken) > 1)
	for _, e := range taken {
		s.count(err, e)
	}
}

// flushBehind acks singly what has waited behind the head for at least age ticks.
func (s *settler) flushBehind(age uint32) { s.flushSingly(s.window.behind(age)) }

// flushSingly acks the oldest delivery first: the broker then has the fewest older ones to search. In order it must.
func (s *settler) flushSingly(taken []ending) {
	slices.SortFunc(taken, func(a, b ending) int { return cmp.Compare(a.tag, b.tag) })
	for _, f := range taken {
		s.count(s.acker.Ack(f.tag, false), f)
	}
}

// count counts one settlement. One that failed is stale: its session has ended and the broker delivers the message
// again.
func (s *settler) count(err error, e ending) {
	if e.returns() {
		s.memory.Sent()
	} else {
		s.memory.Ended(e.known, e.outcome, err)
	}
	if err != nil {
		s.metrics.stale.Inc()
		return
	}
	s.metrics.settled[e.action][e.reason].Inc()
}
