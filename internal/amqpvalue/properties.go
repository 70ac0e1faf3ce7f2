package amqpvalue

import (
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Properties are the properties of a message in JSON; absent ones are left out. A priority of 0 is absent too: the
// client library does not distinguish the two.
type Properties amqp.Publishing

type property struct {
	name  string
	field func(*Properties) any // a pointer
}

// properties are all properties, in the order of an export.
var properties = []property{
	{"content_type", func(p *Properties) any { return &p.ContentType }},
	{"content_encoding", func(p *Properties) any { return &p.ContentEncoding }},
	{"delivery_mode", func(p *Properties) any { return &p.DeliveryMode }},
	{"priority", func(p *Properties) any { return &p.Priority }},
	{"correlation_id", func(p *Properties) any { return &p.CorrelationId }},
	{"reply_to", func(p *Properties) any { return &p.ReplyTo }},
	{"expiration", func(p *Properties) any { return &p.Expiration }},
	{"message_id", func(p *Properties) any { return &p.MessageId }},
	{"timestamp", func(p *Properties) any { return &p.Timestamp }},
	{"type", func(p *Properties) any { return &p.Type }},
	{"user_id", func(p *Properties) any { return &p.UserId }},
	{"app_id", func(p *Properties) any { return &p.AppId }},
}

// PropertiesOf returns the properties of a delivery.
func PropertiesOf(d *amqp.Delivery) Properties {
	return Properties{
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId,
	}
}

// All returns the name and value of each property that is present: a string, a uint8 or a time.Time.
func (p *Properties) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, x := range properties {
			var v any
			var present bool
			switch field := x.field(p).(type) {
			case *string:
				v, present = *field, *field != ""
			case *uint8:
				v, present = *field, *field != 0
			case *time.Time:
				v, present = *field, !field.IsZero()
			}
			if present && !yield(x.name, v) {
				return
			}
		}
	}
}

// MarshalJSON writes an object, as AppendHead writes properties.
func (p Properties) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i := range properties {
		out = properties[i].append(out, &p)
	}
	return append(out, '}'), nil
}

// SetProperties sets the properties of m that the JSON object b has, but for the ignored ones; null has none.
func SetProperties(m *amqp.Publishing, b []byte, ignored ...string) error {
	v, err := ParseValue(b)
	if err != nil {
		return fmt.Errorf("properties: %w", err)
	}
	t, ok := v.(amqp.Table)
	if !ok && v != nil {
		return errors.New("the properties are not a JSON object")
	}
	for name, v := range t {
		if slices.Contains(ignored, name) {
			continue
		}
		if err := SetProperty(m, name, v); err != nil {
			return fmt.Errorf("property %.80q %w", name, err)
		}
	}
	return nil
}

func indexOf(name string) int {
	return slices.IndexFunc(properties, func(x property) bool { return x.name == name })
}

// SetProperty sets the property of m that has this name in JSON. v is as ParseValue returns it; nil and "" leave the
// property absent. Text that is not UTF-8 is {"base64":"…"}, a number may be text, a time is a number of seconds since
// 1970 or a text that readTime reads. An error continues the sentence that the property's name begins.
func SetProperty(m *amqp.Publishing, name string, v any) error {
	i := indexOf(name)
	switch {
	case i < 0:
		return errors.New("is not a property")
	case v == nil || v == "":
		return nil
	}
	switch field := properties[i].field((*Properties)(m)).(type) {
	case *time.Time:
		return setTimestamp(field, v)
	case *uint8:
		n, ok := integer(v, math.MaxUint8)
		if !ok {
			return errors.New("must be an integer from 0 to 255")
		}
		*field = uint8(n) // #nosec G115 -- bounded
	case *string:
		if name != "expiration" {
			return setText(field, v)
		}
		n, ok := integer(v, math.MaxUint32)
		if !ok {
			return errors.New("must be milliseconds, an integer from 0 to 4294967295")
		}
		*field = strconv.FormatInt(n, 10)
	}
	return nil
}

// integer returns a number or the text of one; ok is false for any other value and for one that is not from 0 to most.
func integer(v any, most int64) (n int64, ok bool) {
	n, ok = v.(int64)
	if s, isText := v.(string); isText {
		u, err := strconv.ParseUint(s, 10, 32)
		n, ok = int64(u), err == nil // #nosec G115 -- 32 bits
	}
	return n, ok && n >= 0 && n <= most
}

// setTimestamp sets the time in whole seconds: AMQP does not have parts of them.
func setTimestamp(to *time.Time, v any) error {
	var at time.Time
	ok := true
	switch v := v.(type) {
	case int64:
		at = time.Unix(v, 0)
	case float64:
		at, ok = time.Unix(int64(v), 0), math.Abs(v) < 1<<53
	case string:
		at, ok = readTime(v)
	default:
		ok = false
	}
	switch at = RealTime(at); {
	case !ok:
		return errors.New("must be a time such as 2026-01-31T12:00:00Z, with a zone, or seconds since 1970")
	case at.IsZero(): // the client library takes it for an absent one
		return errors.New("is a time that AMQP cannot carry")
	}
	*to = at
	return nil
}

// setText sets a short string, from a string or from {"base64":"…"}.
func setText(to *string, v any) error {
	s, ok := v.(string)
	if t, coded := v.(amqp.Table); coded && len(t) == 1 {
		var text string
		if text, ok = t["base64"].(string); ok {
			b, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return fmt.Errorf("cannot be read: %w", err)
			}
			s = string(b)
		}
	}
	switch {
	case !ok:
		return errors.New("is not a string")
	case len(s) > ShortMax:
		return fmt.Errorf("has %d bytes; AMQP allows %d", len(s), ShortMax)
	}
	*to = s
	return nil
}
