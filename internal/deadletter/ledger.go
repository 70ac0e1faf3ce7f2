package deadletter

import (
	"math/bits"
	"slices"
	"sync"

	"sidecar/internal/broker"
)

const (
	// orderedReturn is how many messages RabbitMQ before 4.0 requeues in order by one nack: a quorum queue collects them
	// in a map, and Erlang's maps lose the order of more than 32 keys.
	orderedReturn = 32
	// ackTogether bounds the acks that wait to be sent as one.
	ackTogether = 100
)

// span is what one consumer has taken.
type span struct {
	size    int      // how many it may hold
	first   uint64   // delivery tag; 0 until something came
	held    int      // taken and not acked
	staying int      // how many stay
	stays   []uint32 // a bit for each tag from first on
}

// ledger is what a reader holds. The message of the guard, which has a channel of its own, counts as tag 0.
type ledger struct {
	acks   sync.Mutex // held while acks are sent, and while a window ends
	unsent uint64     // the last tag whose ack, and that of all before it, is still to be sent; 0: none
	wait   int        // how many acks that are

	mu    sync.Mutex
	spans []span // of all windows so far, the guard's first
	stays uint64 // the first tag that stays; 0: none
}

// of finds the span of a delivery: one of the last.
func (l *ledger) of(tag uint64) *span {
	for i := len(l.spans) - 1; i > 0; i-- {
		if s := &l.spans[i]; s.first != 0 && tag >= s.first {
			return s
		}
	}
	return &l.spans[0]
}

// current returns the span of the window as it is now.
func (l *ledger) current() span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spans[len(l.spans)-1]
}

// holds reports whether anything has not been acked.
func (l *ledger) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.spans, func(s span) bool { return s.held > 0 })
}

// begin begins the span of another window.
func (l *ledger) begin(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, span{size: size})
}

// took counts messages that the window, or else the guard, has taken.
func (l *ledger) took(taken []*broker.Delivery, window bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.spans[0]
	if window {
		s = &l.spans[len(l.spans)-1]
	}
	if s.held += len(taken); s.first == 0 {
		s.first = taken[0].DeliveryTag
	}
	if !window {
		taken[0].DeliveryTag = 0
	}
}

// keep says that d stays where it is. Its memory is given back.
func (l *ledger) keep(d *broker.Delivery) {
	tag := d.DeliveryTag
	d.Free()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.of(tag)
	if s.staying++; tag == 0 {
		return
	}
	i := tag - s.first
	for uint64(len(s.stays)) <= i/32 {
		s.stays = append(s.stays, 0)
	}
	s.stays[i/32] |= 1 << (i % 32)
	if l.stays == 0 || tag < l.stays {
		l.stays = tag
	}
}

// piece is what one nack requeues.
type piece struct {
	last uint64 // tag
	size int
}

// pieces are the messages of the span that stay, limit at most in each.
func (s *span) pieces(limit int) (all []piece) {
	for i, set := range s.stays {
		n, last := bits.OnesCount32(set), s.first+uint64(32*i+bits.Len32(set)-1) // #nosec G115 -- set is not 0
		switch k := len(all) - 1; {
		case n == 0:
		case k >= 0 && all[k].size+n <= limit:
			all[k] = piece{last, all[k].size + n}
		default:
			all = append(all, piece{last, n})
		}
	}
	return all
}

// ack removes a message from the queue; messages are acked in their order. more: other acks follow, and this one may
// wait to be sent together with them: to a quorum queue each ack is a command. While nothing before them stays they are
// one ack of everything up to the last. The guard's goes last: it holds the place of the guard, which would take
// another one out of its order.
func (r *reader) ack(tag uint64, more bool) error {
	r.acks.Lock()
	defer r.acks.Unlock()
	r.mu.Lock()
	r.of(tag).held--
	alone := r.stays > 0 && r.stays < tag
	r.mu.Unlock()
	if tag == 0 {
		return nil
	}
	if !alone {
		if r.unsent, r.wait = tag, r.wait+1; more && r.wait < ackTogether {
			return nil
		}
	}
	if err := r.sendAcks(); err != nil || !alone {
		return err
	}
	return r.windows.Ack(tag, false)
}

// sendAcks sends the acks that wait. acks is held.
func (r *reader) sendAcks() (err error) {
	if r.unsent > 0 {
		err = r.windows.Ack(r.unsent, true)
	}
	r.unsent, r.wait = 0, 0
	return err
}

// flush sends the acks that wait.
func (r *reader) flush() error {
	r.acks.Lock()
	defer r.acks.Unlock()
	return r.sendAcks()
}
