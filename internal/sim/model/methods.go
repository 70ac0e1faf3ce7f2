package model

import (
	"encoding/binary"
	"fmt"
)

// channel carries out a method of a channel.
func (s *server) channel(id, class, method uint16, r *reader) error {
	ch := s.channels[id]
	switch {
	case class == 20 && method == 10: // open
		s.channels[id] = &channel{s: s, id: id, consumers: map[string]*consumer{}}
		s.method(id, 20, 11, appendLong(nil, ""))
		return nil
	case ch == nil:
		return errProtocol
	case class == 20 && method == 41: // close-ok
		delete(s.channels, id)
		return nil
	case class == 20 && method == 40: // close
		ch.cancelAll()
		ch.end()
		delete(s.channels, id)
		s.method(id, 20, 41)
		return nil
	case ch.closing:
		return nil
	}
	switch class {
	case 40: // exchanges are only declared
		ch.declareExchange(r)
	case 50:
		ch.queueMethod(method, r)
	case 60:
		ch.basic(method, r)
	case 85: // confirm.select
		ch.confirm = true
		if r.u8() == 0 {
			ch.method(85, 11)
		}
	case 90:
		return ch.transaction(method)
	default:
		return errProtocol
	}
	return nil
}

// transaction carries out tx.select and tx.rollback.
func (ch *channel) transaction(method uint16) error {
	if method == 20 { // commit
		return errProtocol
	}
	ch.tx = true
	ch.method(90, method+1)
	return nil
}

func (ch *channel) declareExchange(r *reader) {
	b := ch.s.b
	_, name, kind, flags := r.u16(), r.short(), r.short(), r.u8()
	x := b.exchanges[name]
	switch {
	case x == nil && flags&1 != 0:
		ch.refuse(404, fmt.Sprintf("NOT_FOUND - no exchange '%s' in vhost '/'", name), 40, 10)
		return
	case x == nil:
		b.exchanges[name] = &exchange{name: name, kind: kind}
		b.reroute()
	case flags&1 == 0 && x.kind != kind:
		ch.refuse(406, fmt.Sprintf("PRECONDITION_FAILED - inequivalent arg 'type' for exchange '%s' in vhost '/': "+
			"received '%s' but current is '%s'", name, kind, x.kind), 40, 10)
		return
	}
	if flags&16 == 0 {
		ch.method(40, 11)
	}
}

func (ch *channel) queueMethod(method uint16, r *reader) {
	b := ch.s.b
	_, name := r.u16(), r.short()
	switch method {
	case 10:
		ch.declare(name, r)
	case 20: // bind
		exchange, key, noWait := r.short(), r.short(), r.u8()
		x := b.exchanges[exchange]
		if x == nil || b.queues[name] == nil {
			ch.refuse(404, fmt.Sprintf("NOT_FOUND - no exchange '%s' or queue '%s' in vhost '/'", exchange, name), 50, 20)
			return
		}
		x.bind(binding{key, name})
		b.reroute()
		if noWait == 0 {
			ch.method(50, 21)
		}
	case 40: // delete
		n := 0
		if q := b.queues[name]; q != nil {
			n = len(q.ready)
			b.deleteQueue(q)
		}
		if r.u8()&4 == 0 {
			ch.method(50, 41, binary.BigEndian.AppendUint32(nil, uint32(n)))
		}
	}
}

func (ch *channel) declare(name string, r *reader) {
	b := ch.s.b
	flags, args := r.u8(), r.table()
	q := b.queues[name]
	switch {
	case q == nil && flags&1 != 0:
		ch.refuse(404, fmt.Sprintf("NOT_FOUND - no queue '%s' in vhost '/'", name), 50, 10)
		return
	case q == nil:
		q = newQueue(b, name, args)
		b.queues[name] = q
		b.reroute()
	case flags&1 == 0:
		if arg, received, current, same := compare(args, q.args); !same {
			ch.refuse(406, fmt.Sprintf("PRECONDITION_FAILED - inequivalent arg '%s' for queue '%s' in vhost '/': received "+
				"'%v' but current is '%v'", arg, name, received, current), 50, 10)
			return
		}
	}
	if flags&16 == 0 {
		ok := binary.BigEndian.AppendUint32(appendShort(nil, name), uint32(len(q.ready)))
		ch.method(50, 11, binary.BigEndian.AppendUint32(ok, uint32(len(q.consumers))))
	}
}

// compared are the arguments of a queue that have to be equal in every declaration.
var compared = []string{
	"x-queue-type", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
	"x-overflow", "x-delivery-limit", "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max",
}

func compare(received, current Table) (arg string, is, was any, same bool) {
	for _, arg := range compared {
		is, was := received[arg], current[arg]
		if arg == "x-queue-type" && is == nil {
			is = "classic"
		}
		if arg == "x-queue-type" && was == nil {
			was = "classic"
		}
		if i, ok := number(is); ok {
			is = i
		}
		if i, ok := number(was); ok {
			was = i
		}
		if is != was {
			return arg, is, was, false
		}
	}
	return "", nil, nil, true
}

// basic carries out what is about messages.
func (ch *channel) basic(method uint16, r *reader) {
	switch method {
	case 10: // qos
		_, ch.prefetch = r.u32(), int(r.u16())
		ch.method(60, 11)
	case 20:
		ch.consume(r)
	case 30: // cancel
		tag, noWait := r.short(), r.u8()
		if c := ch.consumers[tag]; c != nil {
			c.q.remove(c)
			delete(ch.consumers, tag)
		}
		if noWait == 0 {
			ch.method(60, 31, appendShort(nil, tag))
		}
	case 40: // publish
		_ = r.u16()
		ch.pub = &publication{exchange: r.short(), key: r.short(), mandatory: r.u8()&1 != 0, size: -1}
	case 70:
		ch.get(r)
	case 80: // ack
		tag, flags := r.u64(), r.u8()
		ch.settle(tag, flags&1 != 0, settleAck, method)
	case 90: // reject
		tag, flags := r.u64(), r.u8()
		ch.settle(tag, false, requeueOr(flags&1 != 0), method)
	case methodNack:
		tag, flags := r.u64(), r.u8()
		ch.settle(tag, flags&1 != 0, requeueOr(flags&2 != 0), method)
	}
}

func requeueOr(requeue bool) settlement {
	if requeue {
		return settleRequeue
	}
	return settleReject
}

func (ch *channel) consume(r *reader) {
	b := ch.s.b
	_, name, tag, flags := r.u16(), r.short(), r.short(), r.u8()
	q := b.queues[name]
	if q == nil {
		ch.refuse(404, fmt.Sprintf("NOT_FOUND - no queue '%s' in vhost '/'", name), 60, 20)
		return
	}
	c := &consumer{ch: ch, q: q, tag: tag, noAck: flags&2 != 0, limit: ch.prefetch}
	ch.consumers[tag] = c
	q.consumers = append(q.consumers, c)
	if flags&8 == 0 {
		ch.method(60, 21, appendShort(nil, tag))
	}
	q.pump()
}

// get hands out one message without a consumer.
func (ch *channel) get(r *reader) {
	_, name, noAck := r.u16(), r.short(), r.u8() != 0
	q := ch.s.b.queues[name]
	if q == nil {
		ch.refuse(404, fmt.Sprintf("NOT_FOUND - no queue '%s' in vhost '/'", name), 60, 70)
		return
	}
	q.pump() // what has expired is no longer to be had
	if len(q.ready) == 0 {
		ch.method(60, 72, appendShort(nil, ""))
		return
	}
	e := q.ready[0]
	q.ready = q.ready[1:]
	ch.tag++
	if !noAck {
		ch.unacked = append(ch.unacked, &delivery{ch.tag, q, e, nil})
		q.unacked++
	}
	head := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 71}, ch.tag)
	head = append(head, bit(e.redelivered))
	head = appendShort(appendShort(head, e.m.exchange), e.m.keys[0])
	head = binary.BigEndian.AppendUint32(head, uint32(len(q.ready)))
	p := ch.s.b.render(q, e)
	if q.quorum && q.b.o.Version < V40 { // a consumer gets the count only of what was delivered in vain
		p.Headers["x-delivery-count"] = int64(e.deliveries)
	}
	ch.s.out = appendMessage(appendFrame(ch.s.out[:0], frameMethod, ch.id, head), ch.id, &p, e.m.body)
	_, _ = ch.s.conn.Write(ch.s.out)
	q.wake()
}
