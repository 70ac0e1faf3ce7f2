package amqpwire

import (
	"encoding/binary"
	"reflect"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Confirming is a channel whose messages are confirmed. The reader of the connection handles returned messages itself:
// the library would keep their bodies, and it drops a return that is not collected within five seconds, after which the
// message counts as confirmed although it is in no queue.
type Confirming struct {
	channel   uint16
	published atomic.Uint64 // counted before a message is written: the largest tag that the broker may confirm
	returned  func(f Fingerprint, why *ReturnedError)
}

// Publishing counts a message; it must be called before the message is written.
func (c *Confirming) Publishing() { c.published.Add(1) }

// Confirm makes returned receive the returned messages of a channel until Unconfirm. It must be called before the first
// publish. returned is called by the goroutine that reads, so before the library sees the confirm of the message.
func (in *intake) Confirm(ch *amqp.Channel, returned func(f Fingerprint, why *ReturnedError)) *Confirming {
	c := &Confirming{channel: number(ch), returned: returned}
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

// checkConfirm refuses a confirm of more messages than were published: the library would count up to its tag, one by
// one.
func (in *intake) checkConfirm(channel uint16, payload []byte) error {
	c := in.confirming(channel)
	if c == nil || len(payload) < 8 {
		return nil // none of ours, or the library's to refuse
	}
	if binary.BigEndian.Uint64(payload) > c.published.Load() {
		return errBadConfirm
	}
	return nil
}
