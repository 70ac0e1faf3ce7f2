package amqpwire

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

const (
	frameHead = 7 // type, channel, size
	frameTail = 1 // end mark
	frameEnd  = 0xCE

	typeMethod    = 1
	typeHeader    = 2
	typeBody      = 3
	typeHeartbeat = 8

	// class and method
	connectionBlocked   = 10<<16 | 60
	connectionUnblocked = 10<<16 | 61
	channelClose        = 20<<16 | 40
	basicReturn         = 60<<16 | 50
	basicDeliver        = 60<<16 | 60
	basicAck            = 60<<16 | 80
	basicNack           = 60<<16 | 120

	// maxDeliver is the size of the longest basic.deliver: three short strings and the fields between them.
	maxDeliver = 4 + 3*256 + 9
	// maxReturn is the size of the longest basic.return: its code and three short strings.
	maxReturn = 4 + 2 + 3*256
	// maxBlocked is the size of the longest connection.blocked: a short string.
	maxBlocked = 4 + 256
	// maxClose is the size of the longest channel.close: its code, a short string, and a method.
	maxClose = 4 + 2 + 256 + 4

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
	o       Options
	over    context.Context           // until the connection has ended
	full    atomic.Bool               // it waits for memory, and reads nothing meanwhile
	resumed atomic.Pointer[time.Time] // when it last ended such a wait; nil: never

	mu        sync.Mutex
	consumers map[string]*Deliveries            // by tag
	confirms  map[uint16]*Confirming            // by channel
	alarm     func(blocked bool, reason string) // nil: not set yet

	// What follows belongs to the goroutine that reads.
	contents map[uint16]*content // by channel
	body     *content            // whose body frame is being read; nil when none is
	left     int                 // bytes of that frame's payload still to come
	pressed  int64               // the size of a delivery that waited for memory in vain; 0: none did lately
}

func newIntake(over context.Context, o Options) *intake {
	return &intake{
		o: o, over: over, consumers: map[string]*Deliveries{}, confirms: map[uint16]*Confirming{},
		contents: map[uint16]*content{},
	}
}

// Consume makes deliveries for the consumer tag go to q. A tag must not be used twice on a connection.
func (in *intake) Consume(tag string, q *Deliveries) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.consumers[tag] = q
}

// Cancel ends the deliveries for the consumer tag. What comes for it afterwards is the library's, which does not know
// the tag either.
func (in *intake) Cancel(tag string) {
	in.mu.Lock()
	q := in.consumers[tag]
	delete(in.consumers, tag)
	in.mu.Unlock()
	if q != nil {
		q.End()
	}
}

// OnAlarm makes report be called when the broker's resource alarm blocks the connection, with the broker's reason, or
// unblocks it. The client library reports it, too, but on a channel that it may have closed meanwhile: when the
// connection ends at that moment the process panics.
func (in *intake) OnAlarm(report func(blocked bool, reason string)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.alarm = report
}

// incomplete is what frame and method return until more of a frame has arrived.
const incomplete = -1

// frame inspects the frame that begins b, of which at least the head is there, and returns how many bytes of it are
// used: 0 if it is the library's. For a body frame of ours it uses the head alone: readBody reads the rest. limit is
// the largest payload.
func (in *intake) frame(b []byte, size, limit int) (n int, err error) {
	channel := binary.BigEndian.Uint16(b[1:])
	total := frameHead + size + frameTail
	c := in.contents[channel]
	switch {
	case b[0] == typeMethod:
		return in.method(b, channel, size)
	case c == nil || c.d == nil:
		return 0, nil
	case b[0] == typeHeader:
		switch {
		case size > maxHeaderFrame:
			return 0, errFrameSize
		case len(b) < total:
			return incomplete, nil
		case b[total-1] != frameEnd:
			return 0, errFrameEnd
		}
		return total, in.header(c, b[frameHead:frameHead+size], limit)
	case b[0] == typeBody:
		switch {
		case size > limit:
			return 0, errFrameSize
		case !c.headed || uint64(size) > c.size-c.got: // #nosec G115 -- a frame size is never negative
			return 0, errBadBody
		}
		in.body, in.left = c, size
		return frameHead, nil
	}
	return 0, nil
}

// method inspects a method frame: does it begin a content that is ours?
func (in *intake) method(b []byte, channel uint16, size int) (n int, err error) {
	if size >= 4 && len(b) < frameHead+4 {
		return incomplete, nil
	}
	var method uint32
	if size >= 4 {
		method = binary.BigEndian.Uint32(b[frameHead:])
	}
	if c := in.contents[channel]; c != nil {
		c.drop() // as the library drops what a method frame interrupts
	}
	longest, malformed := longestOf(method, channel)
	total := frameHead + size + frameTail
	switch {
	case longest == 0:
		return 0, nil
	case size > longest:
		return 0, malformed
	case len(b) < total:
		return incomplete, nil
	case b[total-1] != frameEnd:
		return 0, errFrameEnd
	}
	payload := b[frameHead+4 : frameHead+size]
	var claimed bool
	switch method {
	case connectionBlocked, connectionUnblocked:
		p := cursor{b: payload}
		in.reportAlarm(method == connectionBlocked, string(p.short()))
	case basicDeliver:
		claimed, err = in.deliver(channel, payload)
	case basicReturn:
		claimed, err = in.goBack(channel, payload)
	case channelClose:
		err = in.close(channel, payload)
	default:
		claimed, err = in.confirm(channel, payload, method == basicAck)
	}
	if claimed {
		n = total
	}
	return n, err
}

// longestOf returns the size of the longest frame of a method, and the error for a longer frame; 0 if intake does not
// read that method on that channel.
func longestOf(method uint32, channel uint16) (size int, malformed ProtocolError) {
	switch method {
	case basicDeliver:
		return maxDeliver, errBadDeliver
	case basicReturn:
		return maxReturn, errBadReturn
	case basicAck, basicNack:
		return maxDeliver, errBadConfirm
	case channelClose:
		return maxClose, errBadClose
	case connectionBlocked, connectionUnblocked:
		if channel == 0 {
			return maxBlocked, errBadBlocked
		}
	}
	return 0, ""
}

func (in *intake) reportAlarm(blocked bool, reason string) {
	in.mu.Lock()
	report := in.alarm
	in.mu.Unlock()
	if report != nil {
		report(blocked, reason)
	}
}

// deliver begins a delivery if it is for a consumer of ours.
func (in *intake) deliver(channel uint16, payload []byte) (claimed bool, err error) {
	p := cursor{b: payload}
	consumer, tag, redelivered := p.short(), p.uint64(), p.uint8()&1 != 0
	routing := p.b
	exchange, key := p.short(), p.short()
	if p.bad {
		return false, errBadDeliver
	}
	in.mu.Lock()
	to := in.consumers[string(consumer)]
	in.mu.Unlock()
	if to == nil {
		return false, nil
	}
	if to.channel == 0 {
		to.channel = channel
	}
	if channel == 0 || channel != to.channel {
		return false, errBadDeliver
	}
	c := in.content(channel)
	c.to, c.d = to, NewDelivery()
	c.id.begin(routing)
	c.d.DeliveryTag, c.d.Redelivered = tag, redelivered
	c.d.Exchange, c.d.RoutingKey = recall(&c.last.exchange, exchange), recall(&c.last.key, key)
	return true, nil
}

// goBack begins a returned message if it was published on a channel of ours.
func (in *intake) goBack(channel uint16, payload []byte) (claimed bool, err error) {
	p := cursor{b: payload}
	why := &ReturnedError{Code: int(p.uint16())}
	why.Text, why.Exchange, why.Key = string(p.short()), string(p.short()), string(p.short())
	if p.bad {
		return false, errBadReturn
	}
	to := in.confirming(channel)
	if to == nil {
		return false, nil
	}
	c := in.content(channel)
	c.d, c.back = NewDelivery(), &returning{to: to, why: why}
	return true, nil
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
		c = &content{}
		in.contents[channel] = c
	}
	return c
}
