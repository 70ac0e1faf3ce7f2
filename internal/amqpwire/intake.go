package amqpwire

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/budget"
)

const (
	typeMethod = 1
	typeBody   = 3
	frameEnd   = 0xCE

	basicDeliver = 60<<16 | 60 // class and method

	// maxDeliver is the size of the longest basic.deliver: three short strings and the fields between them.
	maxDeliver = 4 + 3*256 + 9

	// maxContent is the largest body that any broker can be asked to take, in bytes.
	maxContent = 512 << 20
	// maxForeign bounds the body of what is neither a delivery to one of our consumers nor a returned message: nothing
	// large is expected there, and the client library keeps it whole.
	maxForeign = 1 << 20
)

// intake takes the deliveries of our consumers, and returned messages, off the stream before the client library sees
// them. The library would read each delivery through reflection, copy it several times and pass it through two more
// goroutines, at a score of allocations per message. Everything else on the connection stays its own.
//
//	frames of a channel    basic.deliver   header   body   body   channel.close
//	                       our consumer?     │        │      │      │
//	                         └─ yes: begun ──┴────────┴──────┴─> Deliveries
//	                                                                └─> library
//
// A consumer is known by its tag, which we choose and never use twice on a connection. Content that a method frame
// interrupts is dropped, as the library drops it.
type intake struct {
	hidden   func(n int)     // see Options.Hidden
	memory   *budget.Account // asked before a delivery is held
	spool    *Spool          // for bodies that do not fit; may be nil
	patience time.Duration   // to wait for memory
	gone     <-chan struct{} // closed when the connection has ended
	// a consumer or a confirming channel has been added: until then every frame is the library's
	active  atomic.Bool
	full    atomic.Bool               // it waits for memory, and reads nothing meanwhile
	resumed atomic.Pointer[time.Time] // when it last ended such a wait; nil: never

	mu        sync.Mutex
	consumers map[string]*Deliveries // by tag
	confirms  map[uint16]*Confirming // by channel

	// What follows belongs to the goroutine that reads.
	contents map[uint16]*content // by channel
	body     *content            // whose body frame is being read; nil when none is
	left     int                 // bytes of that frame's payload still to come
	pressed  int64               // the size of a delivery that waited for memory in vain; 0: none did lately
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

// consumer finds who a delivery is for.
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

// frame inspects the frame that begins b, of which at least the head is there. For a body frame of ours it uses the
// head alone: take reads the rest. limit is the largest payload.
func (in *intake) frame(b []byte, size, limit int) (whose claim, n int, err error) {
	channel := binary.BigEndian.Uint16(b[1:])
	total := frameHead + size + frameTail
	c := in.contents[channel]
	switch {
	case b[0] == typeMethod:
		return in.method(b, channel, size)
	case c == nil || c.idle():
		return libraries, 0, nil
	case b[0] == typeHeader:
		switch {
		case size > maxHeaderFrame:
			return ours, 0, errFrameSize
		case len(b) < total:
			return unknown, 0, nil
		case b[total-1] != frameEnd:
			return ours, 0, errFrameEnd
		}
		return ours, total, in.header(c, b[frameHead:frameHead+size], limit)
	case b[0] == typeBody:
		switch {
		case size > limit:
			return ours, 0, errFrameSize
		case !c.headed || uint64(size) > c.size-c.got: // #nosec G115 -- a frame size is never negative
			return ours, 0, errBadBody
		}
		in.body, in.left = c, size
		return ours, frameHead, nil
	}
	return libraries, 0, nil
}

// method inspects a method frame: does it begin a content that is ours?
func (in *intake) method(b []byte, channel uint16, size int) (whose claim, n int, err error) {
	if size >= 4 && len(b) < frameHead+4 {
		return unknown, 0, nil
	}
	var method uint32
	if size >= 4 {
		method = binary.BigEndian.Uint32(b[frameHead:])
	}
	longest, malformed := maxDeliver, errBadDeliver
	switch method {
	case basicDeliver:
	case basicReturn:
		longest, malformed = maxReturn, errBadReturn
	case basicAck, basicNack:
		longest, malformed = maxDeliver, errBadConfirm
	default:
		in.interrupt(channel)
		return libraries, 0, nil
	}
	total := frameHead + size + frameTail
	switch {
	case size > longest:
		return ours, 0, malformed
	case len(b) < total:
		return unknown, 0, nil
	case b[total-1] != frameEnd:
		return ours, 0, errFrameEnd
	}
	payload := b[frameHead+4 : frameHead+size]
	switch method {
	case basicDeliver:
		return in.deliver(channel, payload, total)
	case basicReturn:
		return in.goBack(channel, payload, total)
	}
	in.interrupt(channel)
	if err := in.checkConfirm(channel, payload); err != nil {
		return ours, 0, err
	}
	return libraries, 0, nil
}

// interrupt drops the content that a method frame of the library's interrupts.
func (in *intake) interrupt(channel uint16) {
	if c := in.contents[channel]; c != nil {
		c.drop()
	}
}

func (in *intake) deliver(channel uint16, payload []byte, total int) (whose claim, n int, err error) {
	m, ok := readDeliver(payload)
	if !ok {
		return ours, 0, errBadDeliver
	}
	to := in.consumer(m.consumer)
	if to == nil {
		in.interrupt(channel)
		return libraries, 0, nil
	}
	if to.channel == 0 {
		to.channel = channel
	}
	if channel == 0 || channel != to.channel {
		return ours, 0, errBadDeliver
	}
	in.content(channel).begin(to, &m)
	return ours, total, nil
}

// goBack begins a returned message.
func (in *intake) goBack(channel uint16, payload []byte, total int) (whose claim, n int, err error) {
	why, ok := readReturn(payload)
	if !ok {
		return ours, 0, errBadReturn
	}
	to := in.confirming(channel)
	if to == nil {
		in.interrupt(channel)
		return libraries, 0, nil
	}
	c := in.content(channel)
	c.drop()
	c.back = &returning{to: to, why: &why}
	return ours, total, nil
}

// dropAll frees what is not complete: the connection is over.
func (in *intake) dropAll() {
	in.body = nil
	for _, c := range in.contents {
		c.drop()
	}
}

// content is that of a channel.
func (in *intake) content(channel uint16) *content {
	c := in.contents[channel]
	if c == nil {
		if in.contents == nil {
			in.contents = make(map[uint16]*content)
		}
		c = &content{}
		in.contents[channel] = c
	}
	return c
}

func (in *intake) header(c *content, payload []byte, limit int) error {
	if c.headed {
		return errBadContent
	}
	payload, lost := sanitize(payload, limit)
	if lost > 0 {
		in.hidden(lost)
	}
	if c.back != nil {
		return c.back.header(c, payload)
	}
	size, ok := readContent(payload, c.d, &c.last)
	switch {
	case !ok:
		return errBadContent
	case size > maxContent:
		return errContent
	}
	c.headed, c.size = true, size
	if err := in.hold(c.d, int64(size)); err != nil { // #nosec G115 -- at most maxContent
		return err
	}
	if size == 0 {
		c.complete()
	}
	return nil
}

// reading reports whether the next bytes are those of a body frame that frame has accepted.
func (in *intake) reading() bool { return in.body != nil }

// take uses what b holds of the body frame that is being read, its end mark included.
func (in *intake) take(b []byte) (n int, err error) {
	c := in.body
	n = min(in.left, len(b))
	c.write(b[:n])
	in.left -= n
	if n == len(b) {
		return n, nil // the end mark, at least, is still to come
	}
	if b[n] != frameEnd {
		return n, errFrameEnd
	}
	in.body = nil
	if c.got == c.size {
		c.complete()
	}
	return n + 1, nil
}

// space is where the rest of the body frame belongs; fill says how much has been put there. nil: it has to go through
// take.
func (in *intake) space() []byte {
	c := in.body
	if c.d == nil || cap(c.d.Body)-len(c.d.Body) < in.left {
		return nil
	}
	return c.d.Body[len(c.d.Body) : len(c.d.Body)+in.left]
}

func (in *intake) fill(n int) {
	c := in.body
	c.d.Body = c.d.Body[:len(c.d.Body)+n]
	c.d.spooled.arrived(len(c.d.Body)-n, len(c.d.Body))
	c.got += uint64(n) // #nosec G115 -- never negative
	in.left -= n
}
