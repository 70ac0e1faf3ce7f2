package amqpwire

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

const headerFixed = 14 // class, weight, body size, property flags

// Property flags of a content header, in the order of the properties.
const (
	flagContentType     = 0x8000
	flagContentEncoding = 0x4000
	flagHeaders         = 0x2000
	flagDeliveryMode    = 0x1000
	flagPriority        = 0x0800
	flagCorrelationID   = 0x0400
	flagReplyTo         = 0x0200
	flagExpiration      = 0x0100
	flagMessageID       = 0x0080
	flagTimestamp       = 0x0040
	flagType            = 0x0020
	flagUserID          = 0x0010
	flagAppID           = 0x0008
	flagReserved        = 0x0004
)

// cursor reads fields off a payload. The first field that does not fit makes it bad; what it reads then is zero.
type cursor struct {
	b   []byte
	bad bool
}

// bytes returns the next n bytes, or nothing at all when there are fewer.
func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

// fixed returns the next n bytes, or zeros when there are fewer.
func (c *cursor) fixed(n int) []byte {
	if b := c.bytes(n); b != nil {
		return b
	}
	return zeros[:n]
}

var zeros [8]byte

func (c *cursor) uint8() byte    { return c.fixed(1)[0] }
func (c *cursor) uint16() uint16 { return binary.BigEndian.Uint16(c.fixed(2)) }
func (c *cursor) uint32() uint32 { return binary.BigEndian.Uint32(c.fixed(4)) }
func (c *cursor) uint64() uint64 { return binary.BigEndian.Uint64(c.fixed(8)) }

// short returns the bytes of a short string.
func (c *cursor) short() []byte { return c.bytes(int(c.uint8())) }

// long returns the bytes behind a 32 bit length.
func (c *cursor) long() []byte {
	n := c.uint32()
	if n > math.MaxInt32 {
		c.bad, c.b = true, nil
		return nil
	}
	return c.bytes(int(n))
}

// texts keeps the last value of each text that is the same in most messages of a queue, so that it is allocated once.
type texts struct {
	exchange, key, contentType, contentEncoding, replyTo, kind, userID, appID string
}

// recall returns b as text, in *last's memory when it is the same again.
func recall(last *string, b []byte) string {
	if string(b) != *last {
		*last = string(b)
	}
	return *last
}

// readContent reads the payload of a content header, which has been through sanitize, into d, and its header table as
// bytes. size is that of the body. Bytes behind the last property are padding.
func readContent(payload []byte, d *Delivery, last *texts) (size uint64, ok bool) {
	c := cursor{b: payload}
	c.bytes(4) // class and weight
	size = c.uint64()
	flags := c.uint16()
	has := func(flag uint16) bool { return flags&flag != 0 }
	text := func(flag uint16, last *string) string {
		if !has(flag) {
			return ""
		}
		return recall(last, c.short())
	}
	d.ContentType = text(flagContentType, &last.contentType)
	d.ContentEncoding = text(flagContentEncoding, &last.contentEncoding)
	if has(flagHeaders) {
		d.table, d.encoded = append(d.table[:0], c.long()...), true
	}
	if has(flagDeliveryMode) {
		d.DeliveryMode = c.uint8()
	}
	if has(flagPriority) {
		d.Priority = c.uint8()
	}
	if has(flagCorrelationID) {
		d.CorrelationId = string(c.short())
	}
	d.ReplyTo = text(flagReplyTo, &last.replyTo)
	if has(flagExpiration) {
		d.Expiration = string(c.short())
	}
	if has(flagMessageID) {
		d.MessageId = string(c.short())
	}
	if has(flagTimestamp) {
		// #nosec G115 -- all 64 bits may be set; the year is far then, and that is all
		d.Timestamp = time.Unix(int64(c.uint64()), 0)
	}
	d.Type = text(flagType, &last.kind)
	d.UserId = text(flagUserID, &last.userID)
	d.AppId = text(flagAppID, &last.appID)
	if has(flagReserved) {
		c.short()
	}
	return size, !c.bad
}

// headers reads a header table that has been through sanitize. One that is still unreadable becomes one entry that
// holds its bytes: refusing it would bring the same message back for ever.
func headers(entries []byte) amqp.Table {
	t, whole := amqpvalue.Decode(entries)
	if whole {
		return t
	}
	return amqp.Table{hiddenKey: bytes.Clone(entries)}
}
