package amqpwire

import (
	"encoding/binary"
	"reflect"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Confirming is a channel whose messages are confirmed. The reader of the connection handles confirms and returns
// itself: the library would keep the bodies of returned messages, it drops a return that is not collected within five
// seconds, after which the message counts as confirmed although it is in no queue, and it has a Go channel and two map
// entries for each confirm.
type Confirming struct {
	channel uint16
	closed  atomic.Bool // the broker has closed the channel
	events  Events
}

// Events are what the broker says about the messages of a channel. The goroutine that reads calls them, in the order of
// the frames.
type Events struct {
	// Confirmed is called for an ack or a nack of the message with this tag, or of all up to it. The n-th message of a
	// channel has the tag n. It returns false for a message that was never published.
	Confirmed func(tag uint64, multiple, ack bool) bool
	// Returned is called before the confirm of a message that reached no queue.
	Returned func(f Fingerprint, why *ReturnedError)
	// Closed is called when the broker closes the channel, before the library answers.
	Closed func(code int, text string)
}

// Confirm makes events receive what the broker says about the messages of a channel until Unconfirm. It must be called
// before the first publish.
func (in *intake) Confirm(ch *amqp.Channel, events Events) *Confirming {
	c := &Confirming{channel: number(ch), events: events}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.confirms[c.channel] = c
	return c
}

// Unconfirm ends Confirm for a channel that has been closed. Another channel may have its number by now.
func (in *intake) Unconfirm(c *Confirming) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.confirms[c.channel] == c {
		delete(in.confirms, c.channel)
	}
}

func (in *intake) confirming(channel uint16) *Confirming {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.confirms[channel]
}

// number is the channel's number on its connection. The library does not export it, and it panics here if the field is
// gone: returned messages come with no other sign of whose they are.
func number(ch *amqp.Channel) uint16 {
	return uint16(reflect.ValueOf(ch).Elem().FieldByName("id").Uint()) // #nosec G115 -- it is a uint16
}

// confirm reads a basic.ack or a basic.nack if it is for a channel of ours.
func (in *intake) confirm(channel uint16, payload []byte, ack bool) (claimed bool, err error) {
	c := in.confirming(channel)
	if c == nil || len(payload) < 9 {
		return false, nil // not ours, or for the library to refuse
	}
	if !c.events.Confirmed(binary.BigEndian.Uint64(payload), payload[8]&1 != 0, ack) {
		return false, errBadConfirm
	}
	return true, nil
}

// close reads a channel.close. The library answers it.
func (in *intake) close(channel uint16, payload []byte) error {
	p := cursor{b: payload}
	code, text := int(p.uint16()), string(p.short())
	if p.bad {
		return errBadClose
	}
	if c := in.confirming(channel); c != nil {
		c.events.Closed(code, text)
		c.closed.Store(true)
	}
	return nil
}
