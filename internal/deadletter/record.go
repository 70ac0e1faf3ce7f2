package deadletter

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// recordFormat is the version of Record.
const recordFormat = 1

// Record is a parked message as one line of JSON: everything that is needed to park it again as it was. The headers
// that the queue itself writes on delivery (x-delivery-count, x-acquired-count) are not in it.
type Record struct {
	Format     int                   `json:"format"` // 1
	Exchange   amqpvalue.ShortString `json:"exchange"`
	RoutingKey amqpvalue.ShortString `json:"routing_key"`
	Properties amqpvalue.Properties  `json:"properties"`
	Headers    amqpvalue.TypedTable  `json:"headers,omitempty"`
	Body       []byte                `json:"body"` // base64
}

// Record returns m as it is exported. It shares m's memory.
func (m *Message) Record() *Record {
	d := &m.Properties
	r := &Record{
		Format: recordFormat, Exchange: amqpvalue.ShortString(d.Exchange), RoutingKey: amqpvalue.ShortString(d.RoutingKey),
		Properties: amqpvalue.PropertiesOf(d), Headers: amqpvalue.TypedTable(maps.Clone(d.Headers)), Body: d.Body,
	}
	delete(r.Headers, message.HeaderDeliveryCount)
	delete(r.Headers, "x-acquired-count")
	if r.Body == nil { // an empty body comes as either, and is one thing in JSON
		r.Body = []byte{}
	}
	return r
}

// write writes r as one line, harmless for a terminal. The body is the last field and is encoded while it is written:
// it may be larger than memory.
func (r *Record) write(w *bufio.Writer) error {
	head := *r
	head.Body = []byte{}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&head); err != nil {
		return err
	}
	const end = "\"}\n"
	_, _ = w.Write(EscapeJSON(b.Bytes()[:b.Len()-len(end)])) // w keeps its first error
	body := base64.NewEncoder(base64.StdEncoding, w)
	_, _ = body.Write(r.Body)
	_ = body.Close()
	_, err := w.WriteString(end)
	return err
}

// EscapeJSON returns JSON with \u… for characters that a terminal might act on: the same JSON, harmless. Line ends
// stay. Such a character can only be inside a string.
func EscapeJSON(b []byte) []byte {
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		if r == '\n' || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// delivery is the reverse of Message.Record.
func (r *Record) delivery() amqp.Delivery {
	p := &r.Properties
	return amqp.Delivery{
		Exchange: string(r.Exchange), RoutingKey: string(r.RoutingKey), Body: r.Body, Headers: amqp.Table(r.Headers),
		ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode, Priority: p.Priority,
		CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageId: p.MessageId,
		Timestamp: p.Timestamp, Type: p.Type, UserId: p.UserId, AppId: p.AppId,
	}
}

// readRecord reads one line. It refuses an unknown field: its value would be lost.
func readRecord(line []byte) (*Record, error) {
	var r Record
	if err := amqpvalue.UnmarshalStrict(line, &r); err != nil {
		return nil, err
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("format %d is not %d", r.Format, recordFormat)
	}
	if r.Body == nil {
		return nil, errors.New("the body is missing; an empty message has \"\"")
	}
	return &r, nil
}

// refLength is the length of a Ref: 64 bits of a digest, in hexadecimal.
const refLength = 16

// Ref returns a hash of the whole message: two messages with the same Ref are copies of each other. An export and an
// import do not change it.
func (m *Message) Ref() string {
	r := m.Record()
	r.Body = nil
	h := sha256.New()
	// Encode cannot fail: every value has a form in JSON.
	_ = json.NewEncoder(h).Encode(r)
	_, _ = h.Write(m.Properties.Body)
	return hex.EncodeToString(h.Sum(nil)[:refLength/2])
}
