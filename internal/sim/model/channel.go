package model

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// channel is one channel of a connection. Its delivery tags begin at 1, and so do its confirms.
type channel struct {
	s         *server
	id        uint16
	closing   bool // asked to close: everything but close-ok is ignored
	ended     bool
	prefetch  int
	tag       uint64
	unacked   []*delivery // the lowest tag first
	consumers map[string]*consumer
	confirm   bool
	tx        bool // what is published is rolled back: a client that commits is not modelled
	sent      uint64
	pub       *publication // being received
}

type delivery struct {
	tag uint64
	q   *queue
	e   *entry
	to  *consumer // nil for a get
}

type consumer struct {
	ch    *channel
	q     *queue
	tag   string
	noAck bool
	limit int // 0 = none
	holds int
}

// publication is a message on its way in.
type publication struct {
	exchange, key  string
	mandatory      bool
	p              Properties
	body           []byte
	size           int // of the body, -1 before the content header
	withhold, nack bool
}

func (c *consumer) room() bool { return c.limit == 0 || c.holds < c.limit }

// deliver sends a message to a consumer.
func (c *consumer) deliver(e *entry) {
	ch := c.ch
	ch.tag++
	if !c.noAck {
		ch.unacked = append(ch.unacked, &delivery{ch.tag, c.q, e, c})
		c.holds++
		c.q.unacked++
	}
	head := binary.BigEndian.AppendUint64(appendShort([]byte{0, 60, 0, 60}, c.tag), ch.tag)
	head = append(head, bit(e.redelivered))
	head = appendShort(appendShort(head, e.m.exchange), e.m.keys[0])
	p := ch.s.b.render(c.q, e)
	ch.s.out = appendMessage(appendFrame(ch.s.out[:0], frameMethod, ch.id, head), ch.id, &p, e.m.body)
	_, _ = ch.s.conn.Write(ch.s.out)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// method answers on the channel.
func (ch *channel) method(class, method uint16, args ...[]byte) {
	if !ch.closing && !ch.ended {
		ch.s.method(ch.id, class, method, args...)
	}
}

// refuse closes the channel with a reason.
func (ch *channel) refuse(code int, text string, class, method uint16) {
	b := appendShort(binary.BigEndian.AppendUint16(nil, uint16(code)), text)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, class), method)
	ch.method(20, 40, b)
	ch.closing = true
	ch.cancelAll()
	ch.end()
}

func (ch *channel) cancelAll() {
	for _, c := range ch.consumers {
		c.q.remove(c)
	}
	ch.consumers = map[string]*consumer{}
}

// end gives back what is unacked.
func (ch *channel) end() {
	ch.ended = true
	held := ch.unacked
	ch.unacked = nil
	var queues []*queue
	for _, d := range held {
		d.q.unacked--
		d.q.back(d.e, true)
		if !slices.Contains(queues, d.q) {
			queues = append(queues, d.q)
		}
	}
	for _, q := range queues {
		q.pump()
	}
}

// settlement is how a client settles.
type settlement int

const (
	settleAck settlement = iota
	settleRequeue
	settleReject
)

// settle settles the delivery with the tag, with multiple all up to it; 0 with multiple is all.
func (ch *channel) settle(tag uint64, multiple bool, how settlement, method uint16) {
	var taken []*delivery
	if multiple {
		n := 0
		for n < len(ch.unacked) && (tag == 0 || ch.unacked[n].tag <= tag) {
			n++
		}
		taken, ch.unacked = slices.Clone(ch.unacked[:n]), ch.unacked[n:]
	} else if i := slices.IndexFunc(ch.unacked, func(d *delivery) bool { return d.tag == tag }); i >= 0 {
		taken = []*delivery{ch.unacked[i]}
		ch.unacked = slices.Delete(ch.unacked, i, i+1)
	}
	if len(taken) == 0 && (!multiple || tag > ch.tag) {
		ch.refuse(406, fmt.Sprintf("PRECONDITION_FAILED - unknown delivery tag %d", tag), 60, method)
		return
	}
	for _, d := range taken {
		d.q.unacked--
		if d.to != nil {
			d.to.holds--
		}
	}
	for _, d := range taken {
		switch how {
		case settleRequeue:
			d.q.back(d.e, countsRequeue(ch.s.b.o.Version, method))
		case settleReject:
			ch.s.b.deadLetter(d.q, d.e, "rejected")
		}
	}
	for _, d := range taken {
		d.q.pump()
	}
}

// countsRequeue: 4.3 does not count a nack towards the delivery limit.
func countsRequeue(v Version, method uint16) bool { return v < V43 || method != methodNack }

const methodNack = 120

// content takes a part of a message and reports whether it is complete.
func (ch *channel) content(kind byte, payload []byte) bool {
	p := ch.pub
	if p == nil {
		return false
	}
	if kind == frameHeader {
		r := &reader{b: payload}
		_ = r.u32()
		p.size = int(r.u64())
		p.p = r.properties()
	} else {
		p.body = append(p.body, payload...)
	}
	return p.size >= 0 && len(p.body) >= p.size
}

// published routes the message that has been received, and confirms it.
func (ch *channel) published() {
	p, b := ch.pub, ch.s.b
	ch.pub = nil
	if b.exchanges[p.exchange] == nil {
		ch.refuse(404, fmt.Sprintf("NOT_FOUND - no exchange '%s' in vhost '/'", p.exchange), 60, 40)
		return
	}
	if ch.tx {
		return
	}
	ch.sent++
	if p.nack {
		ch.confirmed(ch.sent, methodNack)
		return
	}
	if b.publish(p.exchange, p.key, &p.p, p.body) == 0 && p.mandatory {
		head := appendShort([]byte{0, 60, 0, 50, 312 >> 8, 312 & 255}, "NO_ROUTE")
		head = appendShort(appendShort(head, p.exchange), p.key)
		ch.s.out = appendMessage(appendFrame(ch.s.out[:0], frameMethod, ch.id, head), ch.id, &p.p, p.body)
		_, _ = ch.s.conn.Write(ch.s.out)
	}
	if p.withhold {
		return
	}
	seq := ch.sent
	if b.o.Confirm <= 0 {
		ch.confirmed(seq, 80)
		return
	}
	time.AfterFunc(time.Duration(ch.s.random.Int64N(int64(b.o.Confirm))), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		ch.confirmed(seq, 80)
	})
}

func (ch *channel) confirmed(seq uint64, method uint16) {
	if ch.confirm {
		ch.method(60, method, binary.BigEndian.AppendUint64(nil, seq), []byte{0})
	}
}
