package amqpwire

import (
	"hash"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

// content is what is being received on one channel. It stays for the next message.
type content struct {
	d      *Delivery   // has begun; nil: nothing of ours has
	to     *Deliveries // the consumer that d is for
	back   *returning  // d is a message that is being returned, and has no consumer
	headed bool        // the content header is in
	size   uint64      // of the body
	got    uint64      // of it so far
	last   texts
	id     identity // of d, unless that is being returned
}

// returning is a message that is being returned. Nothing of its body is kept but the digest.
type returning struct {
	to     *Confirming
	why    *ReturnedError
	digest hash.Hash
}

// drop discards an incomplete delivery: it stays unacked at the broker.
func (c *content) drop() {
	if c.d != nil {
		c.d.Free()
	}
	c.to, c.d, c.back, c.headed, c.size, c.got = nil, nil, nil, false, 0, 0
}

func (r *returning) begin(d *Delivery) {
	d.DecodeHeaders()
	m := amqp.Publishing(amqpvalue.PropertiesOf(&d.Delivery))
	m.Headers = d.Headers
	r.digest = digestOf(r.why.Exchange, r.why.Key, m)
}

// write takes a part of the body.
func (c *content) write(p []byte) {
	c.got += uint64(len(p))
	switch {
	case c.back != nil:
		_, _ = c.back.digest.Write(p)
	case c.d.Missing == 0:
		c.d.Body = append(c.d.Body, p...)
		c.arrived(len(p))
	default:
		_, _ = c.id.sum.Write(p)
	}
}

// arrived takes the last n bytes of the body, while they are in memory anyway: a file is not read again to hash it.
func (c *content) arrived(n int) {
	from, to := len(c.d.Body)-n, len(c.d.Body)
	_, _ = c.id.sum.Write(c.d.Body[from:])
	c.d.spooled.arrived(from, to)
}

// complete hands over what has been received. A consumer that has ended since takes no delivery: the message stays the
// broker's.
func (c *content) complete() {
	if c.back != nil {
		c.back.to.events.Returned(Fingerprint(c.back.digest.Sum(nil)), c.back.why)
	} else {
		c.d.Identity = c.id.end()
		if c.to.Add(c.d) {
			c.d = nil
		}
	}
	c.drop()
}

func (in *intake) header(c *content, payload []byte, limit int) error {
	if c.headed {
		return errBadContent
	}
	if c.back == nil {
		c.id.header(payload) // before sanitize, which may hide what makes a difference
	}
	payload, lost := sanitize(payload, limit)
	if lost > 0 {
		in.o.Hidden(lost)
	}
	size, ok := readContent(payload, c.d, &c.last)
	switch {
	case !ok:
		return errBadContent
	case size > maxContent:
		return errContent
	}
	c.headed, c.size = true, size
	if c.back != nil {
		c.back.begin(c.d)
	} else if err := in.hold(c.d, int64(size), c.to.Share); err != nil { // #nosec G115 -- at most maxContent
		return err
	}
	if size == 0 {
		c.complete()
	}
	return nil
}

// readBody uses what b holds of the body frame that is being read, its end mark included.
func (in *intake) readBody(b []byte) (n int, err error) {
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
// readBody.
func (in *intake) space() []byte {
	c := in.body
	if c.back != nil || cap(c.d.Body)-len(c.d.Body) < in.left {
		return nil
	}
	return c.d.Body[len(c.d.Body) : len(c.d.Body)+in.left]
}

func (in *intake) fill(n int) {
	c := in.body
	c.d.Body = c.d.Body[:len(c.d.Body)+n]
	c.arrived(n)
	c.got += uint64(n) // #nosec G115 -- never negative
	in.left -= n
}
