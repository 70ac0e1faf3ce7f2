package consume

import (
	"runtime"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// A delivery that finished before an earlier one waits for it, so that one frame can ack both, but not for long: it
// holds a prefetch slot, and would be delivered again if the connection broke now. stuckAfter is how long nothing may
// move at the head before everything behind it is acked singly. While the head does move, a delivery is passed by it
// soon, and waits for that patience times as long at the most.
const (
	stuckAfter = 5 * time.Millisecond
	patience   = 20
)

// acker is the part of a subscription that settles.
type acker interface {
	Ack(tag uint64, multiple bool) error
	Requeue(tag uint64) error
	Reject(tag uint64) error
}

// event says that one delivery's fate is known.
type event struct {
	tag    uint64
	action message.Action
	reason message.Reason
	final  final
}

type final uint8

const (
	finalAck final = iota
	finalRequeue
	finalReject
)

var (
	finals = [...]final{
		topology.FinalAck: finalAck, topology.FinalRequeue: finalRequeue, topology.FinalReject: finalReject,
	}
	finalNames = [...]string{topology.FinalAck: "ack", topology.FinalRequeue: "nack", topology.FinalReject: "reject"}
)

// settler is the one goroutine that settles for one session. Acks are coalesced: whatever is finished when the
// events run dry goes out as one frame. It lives until every delivery of its session is finished, also when the
// session is long gone: those late ones fail on the dead channel and are counted as stale.
type settler struct {
	acker   acker
	window  *window
	events  chan event
	metrics *metrics
	stuck   *time.Timer
	armed   bool
	head    uint64 // of the window when the timer was set
	done    chan struct{}
}

func newSettler(a acker, prefetch int, m *metrics) *settler {
	s := &settler{
		acker: a, window: newWindow(prefetch), metrics: m,
		events: make(chan event, min(prefetch, 1024)), done: make(chan struct{}),
		stuck: time.NewTimer(time.Hour),
	}
	s.stuck.Stop()
	return s
}

// run settles until events is closed, then flushes what is left.
func (s *settler) run() {
	defer close(s.done)
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				s.flushPrefix()
				s.flushBehind(0)
				return
			}
			s.take(e)
			s.takeWaiting()
			// Let the workers that have their answers hand them in first: one frame then settles them all. With nobody
			// ready to run this returns at once, so it is no delay.
			runtime.Gosched()
			s.takeWaiting()
			s.flush()
		case <-s.stuck.C:
			s.tick()
		}
	}
}

// tick looks after what has been waiting behind the head.
func (s *settler) tick() {
	s.armed = false
	s.flushPrefix()
	s.window.tick++
	age := uint32(patience)
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
	s.stuck.Reset(stuckAfter)
}

// takeWaiting takes what is already there, but never more than a window: a flood must not postpone the flush.
func (s *settler) takeWaiting() {
	for range s.window.prefetch {
		select {
		case e, ok := <-s.events:
			if !ok {
				return // run sees it next
			}
			s.take(e)
		default:
			return
		}
	}
}

func (s *settler) take(e event) {
	switch e.final {
	case finalAck:
		s.window.ack(e.tag, ackReason(e.action, e.reason))
	case finalRequeue:
		s.window.finish(e.tag)
		s.count(s.acker.Requeue(e.tag), e.action, e.reason)
	case finalReject:
		s.window.finish(e.tag)
		s.count(s.acker.Reject(e.tag), e.action, e.reason)
	}
}

func (s *settler) flush() {
	s.flushPrefix()
	switch {
	case len(s.window.pending) == 0:
		if s.armed {
			s.armed = false
			s.stuck.Stop()
		}
	case s.window.crowded():
		s.flushBehind(0)
	case !s.armed:
		s.arm()
	}
}

func (s *settler) flushPrefix() {
	last, multiple, taken := s.window.prefix()
	if len(taken) == 0 {
		return
	}
	err := s.acker.Ack(last, multiple)
	for _, f := range taken {
		s.countAck(err, f)
	}
}

// flushBehind acks singly what has waited behind the head for at least age ticks.
func (s *settler) flushBehind(age uint32) {
	for _, f := range s.window.behind(age) {
		s.countAck(s.acker.Ack(f.tag, false), f)
	}
}

func (s *settler) countAck(err error, f finished) {
	action, reason := unpackReason(f.reason)
	s.count(err, action, reason)
}

// count counts what was really settled. A settlement that failed is stale: its session has gone and the broker
// delivers the message again.
func (s *settler) count(err error, a message.Action, r message.Reason) {
	if err != nil {
		s.metrics.stale.Inc()
		return
	}
	s.metrics.settled[a][r].Inc()
}

// ackReason packs what an ack stands for into the byte the window carries: an acked delivery may have been taken by
// the app, parked, discarded or published for a retry.
func ackReason(a message.Action, r message.Reason) uint8 { return uint8(a)<<5 | uint8(r) }

func unpackReason(b uint8) (message.Action, message.Reason) {
	return message.Action(b >> 5), message.Reason(b & 31)
}
