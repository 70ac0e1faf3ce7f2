package deadletter

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"math"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/terminal"
)

// maxText is the largest body, in bytes, that an export holds in memory, to write it as JSON or as text.
const maxText = 256 << 10

// publishing returns m without the headers that the queue itself writes on delivery. It shares m's memory.
func (m *Message) publishing() amqp.Publishing {
	p := amqp.Publishing(amqpvalue.PropertiesOf(&m.Properties))
	p.Headers, p.Body = maps.Clone(m.Properties.Headers), m.Properties.Body
	delete(p.Headers, message.HeaderDeliveryCount)
	delete(p.Headers, message.HeaderAcquiredCount)
	return p
}

// write writes m as one line of JSON, harmless for a terminal: everything that is needed to park it again as it was. As
// exchange and routing key it has those of the first publish, so that the line can also be published.
func (m *Message) write(w *bufio.Writer) error {
	p := m.publishing()
	_, _ = w.Write(terminal.Escape(amqpvalue.AppendHead(nil, m.exchange, m.routingKey, &p))) // w keeps its first error
	if len(p.Body) <= maxText {
		embed := len(terminal.Escape(p.Body)) == len(p.Body) && !bytes.Contains(p.Body, []byte{'\t'}) // else other bytes
		_, _ = w.Write(terminal.Escape(amqpvalue.AppendBody(nil, &p, embed)))
	} else {
		_, _ = w.WriteString(`,"body_base64":"`)
		body := base64.NewEncoder(base64.StdEncoding, w)
		_, _ = body.Write(p.Body)
		_ = body.Close()
		_ = w.WriteByte('"')
	}
	_, err := w.WriteString("}\n")
	return err
}

// readLine reads one line. It refuses an unknown field: its value would be lost.
func readLine(line []byte) (d amqp.Delivery, err error) {
	var in amqpvalue.Line
	if err = in.Decode(line); err == nil {
		err = in.Invalid
	}
	if err == nil && in.Msg.Body == nil && in.Base64 == nil {
		err = errors.New(`the body is missing; an empty message has ""`)
	}
	if err == nil {
		all := func(string) bool { return false }
		in.Msg.Headers, _, err = in.Headers(all, math.MaxInt)
	}
	if err == nil && in.Base64 != nil {
		in.Msg.Body, err = base64.StdEncoding.AppendDecode(nil, in.Base64)
	} else {
		in.Msg.Body = bytes.Clone(in.Msg.Body) // the line's memory is that of the next line
	}
	return deliveryOf(&in.Msg), err
}

func deliveryOf(p *amqp.Publishing) amqp.Delivery {
	return amqp.Delivery{
		Headers: p.Headers, Body: p.Body,
		ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode, Priority: p.Priority,
		CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageId: p.MessageId,
		Timestamp: p.Timestamp, Type: p.Type, UserId: p.UserId, AppId: p.AppId,
	}
}

// refLength is the length of a Ref: 64 bits of a digest, in hexadecimal.
const refLength = 16

// Ref returns a hash of the whole message: two messages with the same Ref are copies of each other. An export and an
// import do not change it.
func (m *Message) Ref() string {
	p := m.publishing()
	h := sha256.New()
	// The brace ends the object: without it a body could go on with the headers of another message.
	_, _ = h.Write(append(amqpvalue.AppendHead(nil, m.Properties.Exchange, m.Properties.RoutingKey, &p), '}'))
	_, _ = h.Write(p.Body)
	return hex.EncodeToString(h.Sum(nil)[:refLength/2])
}
