package amqpwire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// digestOfReturn returns the digest of a returned message without its body, which has to follow.
func digestOfReturn(exchange, key string, back *amqp.Delivery) digest {
	return digestOf(exchange, key, &amqp.Publishing{
		Headers: back.Headers, ContentType: back.ContentType, ContentEncoding: back.ContentEncoding, Priority: back.Priority,
		CorrelationId: back.CorrelationId, ReplyTo: back.ReplyTo, Expiration: back.Expiration, MessageId: back.MessageId,
		Timestamp: back.Timestamp, Type: back.Type, UserId: back.UserId, AppId: back.AppId,
	})
}

// Fingerprint is the same for a message when it is published and when it is returned.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the fingerprint of a message that is published.
func FingerprintOf(exchange, key string, m *amqp.Publishing) Fingerprint {
	d := digestOf(exchange, key, m)
	_, _ = d.Write(m.Body)
	return d.fingerprint()
}

// digestOf returns the digest of everything but the body.
func digestOf(exchange, key string, m *amqp.Publishing) digest {
	d := digest{sha256.New()}
	for _, s := range [...]string{
		exchange, key, m.ContentType, m.ContentEncoding, m.CorrelationId, m.ReplyTo, m.Expiration, m.MessageId, m.Type,
		m.UserId, m.AppId,
	} {
		d.text(s)
	}
	d.number('p', uint64(m.Priority))
	d.time(m.Timestamp)
	d.table(m.Headers)
	return d
}

func (d digest) fingerprint() (f Fingerprint) {
	d.Sum(f[:0])
	return f
}

// digest makes no difference between values that are equal on the wire: int and int32, an empty table and no table,
// times within the same second.
type digest struct{ hash.Hash }

func (d digest) number(kind byte, n uint64) {
	_, _ = d.Write(binary.BigEndian.AppendUint64([]byte{kind}, n))
}

func (d digest) text(s string) {
	d.number('s', uint64(len(s)))
	_, _ = d.Write([]byte(s))
}

func (d digest) time(t time.Time) {
	if t.IsZero() {
		d.number('z', 0)
		return
	}
	d.number('t', uint64(t.Unix())) // #nosec G115 -- the bits are what counts
}

func (d digest) table(t amqp.Table) {
	d.number('F', uint64(len(t)))
	for _, k := range slices.Sorted(maps.Keys(t)) {
		d.text(k)
		d.field(t[k])
	}
}

func (d digest) field(v any) {
	switch v := v.(type) {
	case int:
		d.field(int32(v)) // #nosec G115 -- as the library writes it
	case string:
		d.text(v)
	case []byte:
		d.number('x', uint64(len(v)))
		_, _ = d.Write(v)
	case time.Time:
		d.time(v)
	case amqp.Table:
		d.table(v)
	case []any:
		d.number('A', uint64(len(v)))
		for _, e := range v {
			d.field(e)
		}
	default: // one number, truth value or nothing
		_, _ = fmt.Fprintf(d, "%T %v\x00", v, v)
	}
}
