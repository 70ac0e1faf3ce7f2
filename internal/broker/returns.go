package broker

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

// returns are messages that came back from a channel, until the confirm of each has come too. A return says nothing of which
// message it is but the message itself. Of several that are the same to the last byte the first that is confirmed is taken
// for it: which one it was nobody can tell, but as many are told to be unroutable as were, no matter which of their confirms
// comes first, or never.
type returns map[fingerprint]*returnedAlike

type returnedAlike struct {
	n   int
	why *ReturnedError // of the last one
}

func (r *returns) add(f fingerprint, why *ReturnedError) {
	if *r == nil {
		*r = returns{}
	}
	alike := (*r)[f]
	if alike == nil {
		alike = &returnedAlike{}
		(*r)[f] = alike
	}
	alike.n++
	alike.why = why
}

func (r *returns) count(f fingerprint) int {
	if alike := (*r)[f]; alike != nil {
		return alike.n
	}
	return 0
}

// take returns why a message like this one came back, once for each that did; nil when none has.
func (r *returns) take(f *fingerprint) error {
	alike := (*r)[*f]
	if alike == nil {
		return nil
	}
	if alike.n--; alike.n == 0 {
		delete(*r, *f)
	}
	return alike.why
}

// fingerprint is that of the message. It is for the holder of the pipe's lock.
func (r *Receipt) fingerprint() *fingerprint {
	if r.print == nil {
		f := fingerprintOf(r.pub.Exchange, r.pub.Key, &r.pub.Msg)
		r.print = &f
	}
	return r.print
}

// digestOfReturn is that of a returned message, whose body has to follow.
func digestOfReturn(exchange, key string, back *amqp.Delivery) digest {
	return digestOf(exchange, key, &amqp.Publishing{
		Headers: back.Headers, ContentType: back.ContentType, ContentEncoding: back.ContentEncoding, Priority: back.Priority,
		CorrelationId: back.CorrelationId, ReplyTo: back.ReplyTo, Expiration: back.Expiration, MessageId: back.MessageId,
		Timestamp: back.Timestamp, Type: back.Type, UserId: back.UserId, AppId: back.AppId,
	})
}

// fingerprint is the same for a message as it was published and as it is returned.
type fingerprint [sha256.Size]byte

func fingerprintOf(exchange, key string, m *amqp.Publishing) fingerprint {
	d := digestOf(exchange, key, m)
	_, _ = d.Write(m.Body)
	return d.fingerprint()
}

// digestOf is that of everything but the body.
func digestOf(exchange, key string, m *amqp.Publishing) digest {
	d := digest{sha256.New()}
	for _, s := range [...]string{
		exchange, key, m.ContentType, m.ContentEncoding, m.CorrelationId, m.ReplyTo, m.Expiration, m.MessageId, m.Type, m.UserId, m.AppId,
	} {
		d.text(s)
	}
	d.number('p', uint64(m.Priority))
	d.time(m.Timestamp)
	d.table(m.Headers)
	return d
}

func (d digest) fingerprint() (f fingerprint) {
	d.Sum(f[:0])
	return f
}

// digest takes values as the wire has them: there is no difference between int and int32, an empty table and none, or times
// within a second.
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
