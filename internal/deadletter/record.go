package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// recordFormat is the version of Record.
const recordFormat = 1

// Record is a parked message as one line of JSON: everything that is needed to park it again as it was. What the queue
// itself writes on delivery (x-delivery-count, x-acquired-count) is not in it.
type Record struct {
	Format     int        `json:"format"` // 1
	Exchange   Text       `json:"exchange"`
	RoutingKey Text       `json:"routing_key"`
	Properties Properties `json:"properties"`
	Headers    Headers    `json:"headers,omitempty"`
	Body       []byte     `json:"body"` // base64
}

// Properties are a message's properties; absent ones are left out.
type Properties struct {
	ContentType     Text   `json:"content_type,omitempty"`
	ContentEncoding Text   `json:"content_encoding,omitempty"`
	DeliveryMode    uint8  `json:"delivery_mode,omitempty"`
	Priority        uint8  `json:"priority,omitempty"` // 0 also when absent: the client library does not tell the two apart
	CorrelationID   Text   `json:"correlation_id,omitempty"`
	ReplyTo         Text   `json:"reply_to,omitempty"`
	Expiration      Text   `json:"expiration,omitempty"`
	MessageID       Text   `json:"message_id,omitempty"`
	Timestamp       *int64 `json:"timestamp,omitempty"` // seconds since 1970
	Type            Text   `json:"type,omitempty"`
	UserID          Text   `json:"user_id,omitempty"`
	AppID           Text   `json:"app_id,omitempty"`
}

// Text is a short string: a JSON string, or {"base64":"…"} when it is no UTF-8.
type Text string

type base64Text struct {
	Base64 *string `json:"base64"`
}

// MarshalJSON writes a string or its bytes.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	s := base64.StdEncoding.EncodeToString([]byte(t))
	return json.Marshal(base64Text{&s})
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '{' {
		return json.Unmarshal(b, (*string)(t))
	}
	var coded base64Text
	if err := strictly(b, &coded); err != nil {
		return err
	}
	if coded.Base64 == nil {
		return errors.New("base64 is missing")
	}
	s, err := base64.StdEncoding.DecodeString(*coded.Base64)
	*t = Text(s)
	return err
}

// Record returns m as it is exported. It shares the memory of m.
func (m *Message) Record() *Record {
	d := &m.Properties
	r := &Record{
		Format: recordFormat, Exchange: Text(d.Exchange), RoutingKey: Text(d.RoutingKey), Body: d.Body,
		Properties: Properties{
			ContentType: Text(d.ContentType), ContentEncoding: Text(d.ContentEncoding), DeliveryMode: d.DeliveryMode,
			Priority: d.Priority, CorrelationID: Text(d.CorrelationId), ReplyTo: Text(d.ReplyTo),
			Expiration: Text(d.Expiration), MessageID: Text(d.MessageId), Type: Text(d.Type), UserID: Text(d.UserId),
			AppID: Text(d.AppId),
		},
		Headers: make(Headers, len(d.Headers)),
	}
	if !d.Timestamp.IsZero() {
		s := d.Timestamp.Unix()
		r.Properties.Timestamp = &s
	}
	for k, v := range d.Headers {
		if !ofTheQueue(k) {
			r.Headers[k] = v
		}
	}
	if r.Body == nil { // an empty body comes as either, and is one thing in JSON
		r.Body = []byte{}
	}
	return r
}

// write writes r as one line. The body, which is the last field, is encoded on the way: it may be larger than memory.
func (r *Record) write(w io.Writer) error {
	head := *r
	head.Body = []byte{}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&head); err != nil {
		return err
	}
	const end = "\"}\n"
	if _, err := w.Write(b.Bytes()[:b.Len()-len(end)]); err != nil {
		return err
	}
	body := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := body.Write(r.Body); err != nil {
		return err
	}
	if err := body.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(w, end)
	return err
}

// ofTheQueue reports whether a header is what a quorum queue writes on delivery.
func ofTheQueue(key string) bool { return key == "x-delivery-count" || key == "x-acquired-count" }

// delivery is the reverse of Message.Record.
func (r *Record) delivery() amqp.Delivery {
	p := &r.Properties
	d := amqp.Delivery{
		Exchange: string(r.Exchange), RoutingKey: string(r.RoutingKey), Body: r.Body, Headers: amqp.Table(r.Headers),
		ContentType: string(p.ContentType), ContentEncoding: string(p.ContentEncoding), DeliveryMode: p.DeliveryMode,
		Priority: p.Priority, CorrelationId: string(p.CorrelationID), ReplyTo: string(p.ReplyTo),
		Expiration: string(p.Expiration), MessageId: string(p.MessageID), Type: string(p.Type), UserId: string(p.UserID),
		AppId: string(p.AppID),
	}
	if p.Timestamp != nil {
		d.Timestamp = time.Unix(*p.Timestamp, 0)
	}
	return d
}

// readRecord reads one line. It refuses what it would not write: a field that is not understood must not be lost.
func readRecord(line []byte) (*Record, error) {
	var r Record
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("format %d is not %d", r.Format, recordFormat)
	}
	if r.Body == nil {
		return nil, errors.New("there is no body; that of an empty message is \"\"")
	}
	return &r, nil
}

// strictly reads exactly one JSON value without unknown fields.
func strictly(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the value")
	}
	return nil
}

// Ref is a name for the message made of all its content: two messages with the same Ref are copies of each other. It
// stays the same when the message is exported and imported.
func (m *Message) Ref() string {
	r := m.Record()
	r.Body = nil
	h := sha256.New()
	// It cannot fail: every field value has a form in JSON.
	_ = json.NewEncoder(h).Encode(r)
	_, _ = h.Write(m.Properties.Body)
	return hex.EncodeToString(h.Sum(nil)[:refLength/2])
}
