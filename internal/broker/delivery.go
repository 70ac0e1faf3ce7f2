package broker

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Delivery is one message as the broker handed it over. It is settled through its Subscription, never through the
// embedded type's own methods, which know no channel here.
//
// Whoever takes a Delivery owns it, body included. Free gives the memory of both back for the next one; a Delivery that
// is never freed is the garbage collector's.
type Delivery struct {
	amqp.Delivery
}

// keptBody is the size up to which the memory of a body is kept for the next message.
const keptBody = 64 << 10

var spare = sync.Pool{New: func() any { return &Delivery{} }}

// NewDelivery returns an empty one, with memory for a body if there is any to spare.
func NewDelivery() *Delivery { return spare.Get().(*Delivery) }

// Free gives d back. Nothing may refer to d or to its body any more; its texts and its header table stay valid.
func (d *Delivery) Free() {
	body := d.Body[:0]
	if cap(body) > keptBody {
		body = nil
	}
	*d = Delivery{}
	d.Body = body
	spare.Put(d)
}

// Deliveries are the messages that a consumer has received and nobody has taken yet, in the order of their tags. The
// broker's prefetch count bounds them: the goroutine that reads the connection never waits for whoever takes them.
type Deliveries struct {
	ready chan struct{} // holds a value while there may be something to see

	mu      sync.Mutex
	waiting []*Delivery
	ended   bool
}

// NewDeliveries returns what nothing has been received for yet.
func NewDeliveries() *Deliveries { return &Deliveries{ready: make(chan struct{}, 1)} }

// Ready holds a value when Take has something new to say. One goroutine may wait for it.
func (q *Deliveries) Ready() <-chan struct{} { return q.ready }

// Take returns all that wait, in into's memory where that is large enough. ended says that no more will come: the
// consumer was stopped, or the subscription ended, and then what was received counts for nothing any more.
func (q *Deliveries) Take(into []*Delivery) (taken []*Delivery, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken = append(into[:0], q.waiting...)
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	if q.ended {
		q.wake() // whoever asks again shall not wait
	}
	return taken, q.ended
}

// Add makes d the last in the row; false when the consumer has ended.
func (q *Deliveries) Add(d *Delivery) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return false
	}
	q.waiting = append(q.waiting, d)
	if len(q.waiting) == 1 {
		q.wake()
	}
	return true
}

// End says that no more will come.
func (q *Deliveries) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.wake()
}

func (q *Deliveries) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
