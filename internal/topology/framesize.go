package topology

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// A message's properties, header table included, travel in one frame: they cannot be split. A peer that gets more
// than the agreed frame size closes the connection, and a message that cannot be delivered would do so for ever.
const (
	// FrameMax is the frame size, in bytes, that RabbitMQ and the client library agree on.
	FrameMax = 131072

	frameOverhead = 8 + 12 // frame header and end, content class, weight and body size
	propertyFlags = 2

	// RetryReserve is kept free for what the broker adds when it dead-letters a message: two x-death entries and the
	// first and last death, with names of up to 255 bytes each.
	RetryReserve = 4096
	// parkReserve is kept free for what a redrive adds to a parked message, and a broker on delivering it.
	parkReserve = 1024
)

// nearFrameMax reports whether m, as it was received, leaves the broker no room for its bookkeeping.
func nearFrameMax(m *message.Message) bool {
	pub := publishing(m, m.Headers)
	pub.UserId, pub.Expiration, pub.ReplyTo = m.UserID, m.Expiration, m.ReplyTo
	reserve := RetryReserve
	if cc, ok := m.Headers["CC"]; ok {
		reserve += entrySize("CC", cc) // copied into x-death as routing keys; from RabbitMQ 4.0 the header stays as well
	}
	return overweight(&pub, reserve)
}

func overweight(pub *amqp.Publishing, reserve int) bool {
	return HeaderFrameSize(pub) > FrameMax-reserve
}

// HeaderFrameSize is at most how many bytes the frame has that carries pub's properties.
func HeaderFrameSize(pub *amqp.Publishing) int {
	n := frameOverhead + propertyFlags + 8 + 1 + 1 // timestamp, priority, delivery mode
	for _, s := range []string{
		pub.ContentType, pub.ContentEncoding, pub.CorrelationId, pub.ReplyTo, pub.Expiration,
		pub.MessageId, pub.Type, pub.UserId, pub.AppId,
	} {
		n += 1 + len(s)
	}
	return n + tableSize(pub.Headers)
}

// tableSize is the size of t on the wire, its length prefix included. All that was received can be written.
func tableSize(t amqp.Table) int {
	n, _ := amqpvalue.TableSize(t)
	return n
}

// entrySize is what one header adds to a table.
func entrySize(key string, v any) int { return tableSize(amqp.Table{key: v}) - tableSize(nil) }

// shortText is what is always left of a text of ours, in bytes.
const shortText = 64

// cuttable are the texts of ours that may be long, the most dispensable first.
var cuttable = []string{
	HeaderFinalAnswer, HeaderFinalProblemDetail, HeaderFinalProblemTitle, HeaderFinalProblemType, HeaderFinalError,
	HeaderFinalDetail,
}

// kept are the headers of ours that are never dropped; x-final-* are not either. Together they are small.
var kept = map[string]bool{
	message.HeaderOriginalQueue: true, message.HeaderOriginalExchange: true, message.HeaderOriginalRoutingKey: true,
	headerOriginalExpiration: true, headerOriginalUserID: true,
}

// shrinkToFrame makes the properties of a parked message fit one frame: first the long texts of ours are cut, then
// headers of the message are dropped, the largest first, and counted in x-final-headers-dropped. A message that cannot
// be parked would be tried for ever.
func shrinkToFrame(pub *amqp.Publishing, frame int) {
	over := HeaderFrameSize(pub) - frame
	for _, key := range cuttable {
		if text, _ := pub.Headers[key].(string); over > 0 && len(text) > shortText {
			short := cut(text, max(len(text)-over, shortText))
			pub.Headers[key] = short
			over -= len(text) - len(short)
		}
	}
	if over <= 0 {
		return
	}
	dropped := int32(0)
	over += entrySize(headerFinalDropped, dropped)
	for _, e := range droppable(pub.Headers) {
		if over <= 0 {
			break
		}
		delete(pub.Headers, e.key)
		over -= e.size
		dropped++
	}
	pub.Headers[headerFinalDropped] = dropped
}

type sized struct {
	key  string
	size int
}

// droppable lists the headers of the message, the largest first; among equals by name, so that the result does not
// depend on the order of a map.
func droppable(h amqp.Table) []sized {
	list := make([]sized, 0, len(h))
	for k, v := range h {
		if !kept[k] && !strings.HasPrefix(k, headerFinalPrefix) {
			list = append(list, sized{k, entrySize(k, v)})
		}
	}
	slices.SortFunc(list, func(a, b sized) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.key, b.key))
	})
	return list
}

// plainText makes s one line of valid UTF-8 of at most limit bytes: it will be read in consoles and logs.
func plainText(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	return cut(s, limit)
}

// cut shortens valid UTF-8 to at most limit bytes without splitting a character.
func cut(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}
