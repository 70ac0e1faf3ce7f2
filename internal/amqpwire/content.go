package amqpwire

// content is what is being received on one channel. It stays for the next message.
type content struct {
	to     *Deliveries // a delivery to this consumer has begun
	d      *Delivery   // of to
	back   *returning  // a returned message has begun
	headed bool        // the content header is in
	size   uint64      // of the body
	got    uint64      // of it so far
	last   texts
}

// returning is a message that is being returned. Nothing of it is kept but its digest.
type returning struct {
	to     *Confirming
	why    *ReturnedError
	digest digest
}

// idle reports whether nothing of ours has begun.
func (c *content) idle() bool { return c.to == nil && c.back == nil }

func (c *content) begin(to *Deliveries, m *deliver) {
	c.drop()
	c.to, c.d = to, NewDelivery()
	c.d.DeliveryTag, c.d.Redelivered = m.tag, m.redelivered
	c.d.Exchange, c.d.RoutingKey = recall(&c.last.exchange, m.exchange), recall(&c.last.key, m.key)
}

// drop discards an incomplete delivery: it stays unacked at the broker.
func (c *content) drop() {
	if c.d != nil {
		c.d.Free()
	}
	c.to, c.d, c.back, c.headed, c.size, c.got = nil, nil, nil, false, 0, 0
}

func (r *returning) header(c *content, payload []byte) error {
	var d Delivery
	size, ok := readContent(payload, &d, &c.last)
	switch {
	case !ok:
		return errBadContent
	case size > maxContent:
		return errContent
	}
	d.DecodeHeaders()
	r.digest = digestOfReturn(r.why.Exchange, r.why.Key, &d.Delivery)
	c.headed, c.size = true, size
	if size == 0 {
		c.complete()
	}
	return nil
}

// write takes a part of the body.
func (c *content) write(p []byte) {
	c.got += uint64(len(p))
	switch {
	case c.back != nil:
		_, _ = c.back.digest.Write(p)
	case c.d.Missing == 0:
		c.d.Body = append(c.d.Body, p...)
		c.d.spooled.arrived(len(c.d.Body)-len(p), len(c.d.Body))
	}
}

// complete hands over what has been received. A consumer that has ended since takes no delivery: the message stays the
// broker's.
func (c *content) complete() {
	switch {
	case c.back != nil:
		c.back.to.returned(c.back.digest.fingerprint(), c.back.why)
	case c.to.Add(c.d):
		c.d = nil
	}
	c.drop()
}
