package amqpwire

import (
	"encoding/binary"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

const (
	basicPublish = 60<<16 | 40
	basicClass   = 60

	mandatoryBit = 1

	// largeBody is the size of a body that is written by itself: copying it costs more than a write.
	largeBody = 16 << 10
)

// Publish writes a persistent message, for which Fits has returned no error, on a confirming channel. With gather its
// frames may stay here until there are 64 KiB, another frame is written, or Flush. It returns amqp.ErrClosed, and
// writes nothing, when the broker has closed the channel; after any other error the connection has ended.
//
// The client library would take four times as long: it writes each field through reflection and keeps a channel for
// each message.
func (w *Wire) Publish(c *Confirming, exchange, key string, mandatory bool, m *amqp.Publishing, gather bool) error {
	w.out.Lock()
	defer w.out.Unlock()
	w.awaitBoundary()
	if c.closed.Load() { // before the library answers: from then on the broker does not know the channel
		return amqp.ErrClosed
	}
	start := len(w.gathered)
	b := binary.BigEndian.AppendUint32(beginFrame(w.gathered, typeMethod, c.channel), basicPublish)
	b = amqpvalue.AppendShort(amqpvalue.AppendShort(append(b, 0, 0), exchange), key)
	if mandatory {
		b = append(b, mandatoryBit)
	} else {
		b = append(b, 0)
	}
	b = endFrame(b, start)
	start = len(b)
	b = endFrame(appendContent(beginFrame(b, typeHeader, c.channel), m), start)
	return w.publishBody(b, c.channel, m.Body, gather)
}

// publishBody adds the frames of a body to b, which becomes what is gathered, and writes it unless it may stay.
func (w *Wire) publishBody(b []byte, channel uint16, body []byte, gather bool) error {
	for limit := w.payloadLimit(); len(body) > 0; {
		piece := body[:min(len(body), limit)]
		body = body[len(piece):]
		start := len(b)
		b = beginFrame(b, typeBody, channel)
		if len(piece) < largeBody {
			if b = endFrame(append(b, piece...), start); len(b) < gatherLimit {
				continue
			}
			w.setGathered(b)
			if err := w.push(); err != nil {
				return err
			}
			b = w.gathered
			continue
		}
		binary.BigEndian.PutUint32(b[start+3:], uint32(len(piece))) // #nosec G115 -- at most a frame
		w.setGathered(b)
		if err := w.push(); err != nil {
			return err
		}
		if _, err := w.write(piece); err != nil {
			return err
		}
		b = append(w.gathered, frameEnd)
	}
	w.setGathered(b)
	if gather && len(b) < gatherLimit {
		return nil
	}
	return w.push()
}

// beginFrame appends the head of a frame, whose size endFrame sets.
func beginFrame(b []byte, kind byte, channel uint16) []byte {
	return append(binary.BigEndian.AppendUint16(append(b, kind), channel), 0, 0, 0, 0)
}

// endFrame ends the frame that begins at start.
func endFrame(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start+3:], uint32(len(b)-start-frameHead)) // #nosec G115 -- at most a frame
	return append(b, frameEnd)
}

// appendContent appends the payload of a content header.
func appendContent(b []byte, m *amqp.Publishing) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(append(b, 0, basicClass, 0, 0), uint64(len(m.Body)))
	at, flags := len(b), uint16(0)
	b = append(b, 0, 0)
	short := func(flag uint16, s string) {
		if s != "" {
			flags |= flag
			b = amqpvalue.AppendShort(b, s)
		}
	}
	short(flagContentType, m.ContentType)
	short(flagContentEncoding, m.ContentEncoding)
	if len(m.Headers) > 0 {
		flags |= flagHeaders
		b = amqpvalue.AppendTable(b, m.Headers)
	}
	flags |= flagDeliveryMode
	b = append(b, amqp.Persistent)
	if m.Priority > 0 {
		flags |= flagPriority
		b = append(b, m.Priority)
	}
	short(flagCorrelationID, m.CorrelationId)
	short(flagReplyTo, m.ReplyTo)
	short(flagExpiration, m.Expiration)
	short(flagMessageID, m.MessageId)
	if !m.Timestamp.IsZero() {
		flags |= flagTimestamp
		b = be.AppendUint64(b, uint64(m.Timestamp.Unix())) // #nosec G115 -- its bits
	}
	short(flagType, m.Type)
	short(flagUserID, m.UserId)
	short(flagAppID, m.AppId)
	be.PutUint16(b[at:], flags)
	return b
}
