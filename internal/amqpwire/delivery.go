package amqpwire

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/budget"
)

// Delivery is one message as the broker handed it over. It is settled through its Subscription, never through the
// embedded type's own methods, which know no channel here.
//
// The goroutine that takes a Delivery owns it and its body, and has to call Free when nothing refers to either: the
// memory budget counts it until then.
type Delivery struct {
	amqp.Delivery // without Headers until DecodeHeaders

	// Missing is the size in bytes of a body that fits neither into the memory budget nor into a file, as MissingWhy says:
	// it was not kept, and Body is empty. Such a message can only be requeued.
	Missing    int64
	MissingWhy error

	// Identity is a hash of the whole message, which its next delivery to this process has, too: see identity.
	Identity uint64

	table   []byte          // the header table as it was received, sanitized
	encoded bool            // there is one that has not been decoded
	memory  *budget.Account // of held and lacked
	held    int64
	lacked  int64    // see Lacked
	spooled *spooled // nil: the body is in memory
}

// Lacked returns how many bytes of which memory could not be taken for a delivery whose body is Missing. memory may be
// nil, which bounds nothing.
func (d *Delivery) Lacked() (memory *budget.Account, n int64) { return d.memory, d.lacked }

// DecodeHeaders makes Headers of the table that was received. Deliveries that wait have only the bytes of it: decoded,
// it may take up to decodedPerByte times as much.
func (d *Delivery) DecodeHeaders() {
	if d.encoded {
		d.Headers, d.encoded = headers(d.table), false
	}
}

// keptBody is the size up to which the memory of a body is kept for the next message, keptTable that of a header table.
const (
	keptBody  = 64 << 10
	keptTable = 4 << 10
)

var spare = sync.Pool{New: func() any { return &Delivery{} }}

// NewDelivery returns an empty one, with memory for a body if there is any to spare.
func NewDelivery() *Delivery { return spare.Get().(*Delivery) }

// Strip gives back the memory of the body and the headers, to which nothing may refer any more. What is left of the
// delivery is counted until Free.
func (d *Delivery) Strip() {
	if d.spooled != nil {
		d.spooled.free()
		d.spooled = nil
	}
	d.Body, d.Headers, d.table, d.encoded = nil, nil, nil, false
	left := min(d.held, deliveryCost)
	d.memory.Give(d.held - left)
	d.held = left
}

// Free gives d back. Nothing may refer to d or to its body any more; its texts and its decoded headers stay valid.
func (d *Delivery) Free() {
	body, table := d.Body[:0], d.table[:0]
	if d.spooled != nil {
		d.spooled.free()
		body = nil
	}
	if cap(body) > keptBody {
		body = nil
	}
	if cap(table) > keptTable {
		table = nil
	}
	d.memory.Give(d.held)
	*d = Delivery{}
	d.Body, d.table = body, table
	spare.Put(d)
}

// Deliveries are the messages that a consumer has received and that were not taken yet, in the order of their tags. The
// broker's prefetch count bounds their number, and the memory budget their size.
type Deliveries struct {
	// Share is memory that only this consumer takes. A body that does not fit into what is free of it goes to a file at
	// once. nil: the memory of the connection, for which a delivery waits. It must not change after the first delivery.
	Share *budget.Account

	ready   chan struct{} // holds a value while there may be something to see
	channel uint16        // of the first delivery, and so of all; belongs to the goroutine that reads the connection

	most int // how many may wait: the prefetch count; 0: not bounded

	mu      sync.Mutex
	waiting []*Delivery
	ended   bool
}

// NewDeliveries returns empty Deliveries for a prefetch count; 0: not bounded.
func NewDeliveries(prefetch int) *Deliveries {
	return &Deliveries{ready: make(chan struct{}, 1), most: prefetch}
}

// Ready holds a value when Take has something new to say. One goroutine may wait for it.
func (q *Deliveries) Ready() <-chan struct{} { return q.ready }

// Take returns all deliveries that wait, in into's memory if that is large enough. ended is true when there will be no
// more: the consumer was stopped, or the subscription ended, and then the received deliveries are void.
func (q *Deliveries) Take(into []*Delivery) (taken []*Delivery, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken = append(into[:0], q.waiting...)
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	if q.ended {
		q.wake() // the next call must not wait
	}
	return taken, q.ended
}

// Add makes d the last in the row; false when the consumer has ended, or the broker ignores the prefetch count.
func (q *Deliveries) Add(d *Delivery) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended || q.most > 0 && len(q.waiting) == q.most {
		return false
	}
	q.waiting = append(q.waiting, d)
	if len(q.waiting) == 1 {
		q.wake()
	}
	return true
}

// Drop frees what waits, and makes Add refuse: the session has ended, and the broker delivers all of it again.
func (q *Deliveries) Drop() {
	q.End()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.waiting {
		d.Free()
	}
	q.waiting = nil
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
