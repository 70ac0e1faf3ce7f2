package outbox

import (
	"errors"
	"fmt"
	"slices"
	"unique"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

const (
	// headerTracking carries the ids of the messages that led to this one, its own last.
	headerTracking = "x-outbox-tracking-ids"
	maxTracking    = 64
)

// errRow returns an error that is about the row itself, not about the broker.
func errRow(format string, args ...any) error {
	return fmt.Errorf("%w: %w", broker.ErrInvalid, fmt.Errorf(format, args...))
}

// publication makes the message of a row from its columns, in the order of fetched.
func (t *Table) publication(r *row, columns [][]byte, exchange string) error {
	pub := &r.pub
	*pub = message.Publication{Kind: message.KindOutbox, Exchange: exchange, Key: shared(columns[1])}
	if columns[0] != nil {
		pub.Exchange = shared(columns[0])
	}
	if pub.Exchange == message.DefaultExchange {
		pub.Exchange = ""
	}
	m := &pub.Msg
	m.Body = r.body
	if t.bodyJSON() {
		m.ContentType = "application/json"
	}
	var headers amqp.Table
	var err error
	if columns[2] != nil {
		if headers, _, err = amqpvalue.ParseTable(columns[2], message.Reserved); err != nil {
			return errRow("headers: %w", err)
		}
	}
	if columns[3] != nil {
		err = amqpvalue.SetProperties(m, columns[3], "delivery_mode") // messages are persistent
		if err == nil && m.UserId != "" {
			err = errors.New(`property "user_id" is the broker user of this connection; a row cannot set it`)
		}
		if err != nil {
			return errRow("%w", err)
		}
	}
	if columns[4] != nil {
		m.MessageId = string(columns[4])
	}
	if m.MessageId == "" {
		m.MessageId = t.messageID(r.id)
	}
	m.Headers, err = track(headers, columns[5], m.MessageId)
	return err
}

// messageID returns the id of a message without one: always the same for a row, and not used by another publisher.
func (t *Table) messageID(id string) string {
	if t.Found[colID].Type == "uuid" {
		return id
	}
	return t.Database + "." + t.Schema + "." + t.Table + "." + id
}

// track adds the header of tracking ids: the chain so far and the message's own id.
func track(headers amqp.Table, column []byte, id string) (amqp.Table, error) {
	var chain []any
	if column != nil {
		v, err := amqpvalue.ParseValue(column)
		if err != nil {
			return nil, errRow("tracking_ids: %w", err)
		}
		list, ok := v.([]any)
		if !ok && v != nil || slices.ContainsFunc(list, func(e any) bool { _, text := e.(string); return !text }) {
			return nil, errRow("tracking_ids is not an array of strings")
		}
		chain = list
	} else if list, ok := headers[headerTracking].([]any); ok {
		chain = list
	}
	if headers == nil {
		headers = make(amqp.Table, 2)
	}
	if !slices.Contains(chain, any(id)) {
		chain = append(slices.Clip(chain), id)
	}
	headers[headerTracking] = chain[max(0, len(chain)-maxTracking):]
	return headers, nil
}

// startSpan starts the span of a row's publish, whose context goes into the message. While tracing is off the row's own
// stays, and a row without one gets one whose trace id is always the same.
func (r *Relay) startSpan(x *row) {
	m := &x.pub.Msg
	in := telemetry.CarrierFrom(m.Headers)
	x.span = r.o.Tracing.Produce(in, telemetry.Attrs{
		MessageID: m.MessageId, CorrelationID: m.CorrelationId, Exchange: x.pub.Exchange, RoutingKey: x.pub.Key,
		BodySize: len(m.Body), Timestamp: m.Timestamp, Broker: r.o.Publisher,
	})
	if out := x.span.Carrier(); out != in {
		m.Headers = out.Inject(m.Headers)
	}
}

// shared returns a text of which most rows have the same, so that it is in memory once.
func shared(text []byte) string { return unique.Make(string(text)).Value() }
