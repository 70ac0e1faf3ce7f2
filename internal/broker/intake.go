package broker

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	typeMethod = 1
	typeBody   = 3
	frameEnd   = 0xCE

	basicDeliver = 60<<16 | 60 // class and method

	// maxDeliver is the size of the longest basic.deliver: three short strings and what stands between them.
	maxDeliver = 4 + 3*256 + 9

	// maxAhead bounds the memory a body gets on the word of its header alone.
	maxAhead = 1 << 20
)

// protocolError is why a connection is given up whose other end breaks the protocol: a reader that guesses takes one
// message for another.
type protocolError string

func (e protocolError) Error() string { return string(e) }

const (
	errNotAMQP    = protocolError("the peer does not speak AMQP 0-9-1")
	errBadDeliver = protocolError("the broker sent a malformed basic.deliver")
	errBadContent = protocolError("the broker sent a malformed content header")
	errBadBody    = protocolError("the broker sent a body of another length than announced")
	errFrameEnd   = protocolError("the broker sent a frame without its end mark")
	errFrameSize  = protocolError("the broker sent a frame larger than negotiated")
)

// intake takes the deliveries of our consumers off the stream before the client library sees them. The library would
// read each through reflection, copy it several times and pass it through two more goroutines, at a score of
// allocations per message. Everything else on the connection, answers to consume and cancel included, stays its own.
//
//	frames of a channel    basic.deliver   header   body   body   channel.close
//	                       our consumer?     │        │      │      │
//	                         └─ yes: begun ──┴────────┴──────┴─> Deliveries
//	                                                                └─> library
//
// A consumer is known by its tag, which we choose and never use twice on a connection. Content that a method frame
// interrupts is dropped, as the library drops it.
type intake struct {
	lost   func(n int) // told how many header values of a message nobody will see
	active atomic.Bool // a consumer has been added: until then every frame is the library's

	mu        sync.Mutex
	consumers map[string]*Deliveries // by tag

	// What follows belongs to the goroutine that reads.
	contents map[uint16]*content // by channel
	body     *content            // whose body frame is being read; nil when none is
	left     int                 // bytes of that frame's payload still to come
}

// content is what is being received on one channel. It stays for the next message.
type content struct {
	to     *Deliveries // nil: nothing has begun
	d      *Delivery
	headed bool   // the content header is in
	size   uint64 // of the body
	last   texts
}

// add makes deliveries to the consumer tag go to q.
func (in *intake) add(tag string, q *Deliveries) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.consumers == nil {
		in.consumers = make(map[string]*Deliveries)
	}
	in.consumers[tag] = q
	in.active.Store(true)
}

// remove ends the consumer's deliveries. What comes for the tag afterwards is the library's, which knows it no more
// than we do.
func (in *intake) remove(tag string) {
	in.mu.Lock()
	q := in.consumers[tag]
	delete(in.consumers, tag)
	in.mu.Unlock()
	if q != nil {
		q.End()
	}
}

func (in *intake) consumer(tag []byte) *Deliveries {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.consumers[string(tag)]
}

// claim is whose a frame is.
type claim uint8

const (
	libraries claim = iota
	ours            // and n bytes of it are used
	unknown         // until more of it has arrived
)

// frame looks at the frame that begins b, of which at least the head is there. For a body frame of ours it uses the
// head alone: take reads the rest. limit is the largest payload.
func (in *intake) frame(b []byte, size, limit int) (whose claim, n int, err error) {
	channel := binary.BigEndian.Uint16(b[1:])
	total := frameHead + size + frameTail
	switch b[0] {
	case typeMethod:
		return in.method(b, channel, size)
	case typeHeader:
		c := in.contents[channel]
		switch {
		case c == nil || c.to == nil:
			return libraries, 0, nil
		case size > maxHeaderFrame:
			return ours, 0, errFrameSize
		case len(b) < total:
			return unknown, 0, nil
		case b[total-1] != frameEnd:
			return ours, 0, errFrameEnd
		}
		return ours, total, in.header(c, b[frameHead:frameHead+size], limit)
	case typeBody:
		c := in.contents[channel]
		switch {
		case c == nil || c.to == nil:
			return libraries, 0, nil
		case size > limit:
			return ours, 0, errFrameSize
		case !c.headed || uint64(size) > c.size-uint64(len(c.d.Body)): // #nosec G115 -- a frame size is never negative
			return ours, 0, errBadBody
		}
		in.body, in.left = c, size
		return ours, frameHead, nil
	}
	return libraries, 0, nil
}

// method looks at a method frame: is it a basic.deliver to one of our consumers?
func (in *intake) method(b []byte, channel uint16, size int) (whose claim, n int, err error) {
	if size >= 4 && len(b) < frameHead+4 {
		return unknown, 0, nil
	}
	if size < 4 || binary.BigEndian.Uint32(b[frameHead:]) != basicDeliver {
		if c := in.contents[channel]; c != nil {
			c.drop()
		}
		return libraries, 0, nil
	}
	total := frameHead + size + frameTail
	switch {
	case size > maxDeliver:
		return ours, 0, errBadDeliver
	case len(b) < total:
		return unknown, 0, nil
	case b[total-1] != frameEnd:
		return ours, 0, errFrameEnd
	}
	m, ok := readDeliver(b[frameHead+4 : frameHead+size])
	if !ok {
		return ours, 0, errBadDeliver
	}
	c := in.contents[channel]
	to := in.consumer(m.consumer)
	if to == nil {
		if c != nil {
			c.drop()
		}
		return libraries, 0, nil
	}
	if c == nil {
		if in.contents == nil {
			in.contents = make(map[uint16]*content)
		}
		c = &content{}
		in.contents[channel] = c
	}
	c.begin(to, &m)
	return ours, total, nil
}

func (c *content) begin(to *Deliveries, m *deliver) {
	c.drop()
	c.to, c.d = to, NewDelivery()
	c.d.DeliveryTag, c.d.Redelivered = m.tag, m.redelivered
	c.d.Exchange, c.d.RoutingKey = recall(&c.last.exchange, m.exchange), recall(&c.last.key, m.key)
}

// drop forgets a delivery that is not complete: it stays unacked, and the broker's.
func (c *content) drop() {
	if c.d != nil {
		c.d.Free()
	}
	c.to, c.d, c.headed, c.size = nil, nil, false, 0
}

func (in *intake) header(c *content, payload []byte, limit int) error {
	if c.headed {
		return errBadContent
	}
	payload, lost := defuse(payload, limit)
	size, hidden, ok := readContent(payload, &c.d.Delivery, &c.last)
	if !ok {
		return errBadContent
	}
	if hidden {
		lost++
	}
	if lost > 0 {
		in.lost(lost)
	}
	c.headed, c.size = true, size
	if size == 0 {
		c.complete()
		return nil
	}
	c.d.Body = slices.Grow(c.d.Body, int(min(size, maxAhead))) // #nosec G115 -- at most maxAhead
	return nil
}

// reading reports whether the next bytes are those of a body frame that frame has accepted.
func (in *intake) reading() bool { return in.body != nil }

// take uses what b holds of the body frame that is being read, its end mark included.
func (in *intake) take(b []byte) (n int, err error) {
	c := in.body
	n = min(in.left, len(b))
	c.d.Body = append(c.d.Body, b[:n]...)
	in.left -= n
	if n == len(b) {
		return n, nil // the end mark, at least, is still to come
	}
	if b[n] != frameEnd {
		return n, errFrameEnd
	}
	in.body = nil
	if uint64(len(c.d.Body)) == c.size {
		c.complete()
	}
	return n + 1, nil
}

// space is where the rest of the body frame belongs; fill says how much has been put there.
func (in *intake) space() []byte {
	c := in.body
	c.d.Body = slices.Grow(c.d.Body, in.left)
	return c.d.Body[len(c.d.Body) : len(c.d.Body)+in.left]
}

func (in *intake) fill(n int) {
	c := in.body
	c.d.Body = c.d.Body[:len(c.d.Body)+n]
	in.left -= n
}

// complete hands the delivery over. A consumer that has ended since takes none: the message stays the broker's.
func (c *content) complete() {
	if c.to.Add(c.d) {
		c.d = nil
	}
	c.drop()
}
