package outbox

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/message"
)

const (
	// headerTracking carries the ids of the messages that led to this one, its own last.
	headerTracking = "x-outbox-tracking-ids"
	maxTracking    = 64
	// maxDepth is how deep a header's value may nest: clients of brokers read no deeper.
	maxDepth = 32

	// defaultExchange stands for the broker's default exchange, whose own name is empty.
	defaultExchange = "amq.default"
)

// errRow is what is wrong with a row itself.
func errRow(format string, args ...any) error {
	return fmt.Errorf("%w: %w", broker.ErrInvalid, fmt.Errorf(format, args...))
}

// publication makes the message of a row out of its columns, which stand in the order of fetched.
func (t *Table) publication(r *row, columns [][]byte, exchange string, texts *interner) error {
	pub := &r.pub
	*pub = broker.Publication{Kind: broker.KindOutbox, Exchange: exchange, Key: texts.text(columns[1])}
	if columns[0] != nil {
		pub.Exchange = texts.text(columns[0])
	}
	if pub.Exchange == defaultExchange {
		pub.Exchange = ""
	}
	m := &pub.Msg
	m.Body = r.body
	if t.BodyJSON() {
		m.ContentType = "application/json"
	}
	headers, err := headerTable(columns[2])
	if err != nil {
		return err
	}
	if columns[3] != nil {
		if err := properties(m, columns[3], texts); err != nil {
			return err
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

// messageID is the id of a message that brought none: one that no other publisher uses, and always the same.
func (t *Table) messageID(id string) string {
	if t.columns[colID].Type == "uuid" {
		return id
	}
	return t.Database + "." + t.Schema + "." + t.Table + "." + id
}

// track makes the header of tracking ids: the chain so far and the message's own id.
func track(headers amqp.Table, column []byte, id string) (amqp.Table, error) {
	var chain []any
	if column != nil {
		v, err := message.ValueFromJSON(column, maxDepth)
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

// headerTable reads the headers of a row, without those that a broker or the sidecar writes, or that send copies elsewhere.
func headerTable(column []byte) (amqp.Table, error) {
	if column == nil {
		return nil, nil //nolint:nilnil // no headers is no error, and no table
	}
	headers, err := message.TableFromJSON(column, maxDepth)
	if len(column) == 0 {
		err = message.CheckJSON(column)
	}
	if err != nil {
		return nil, errRow("headers: %w", err)
	}
	return headers, nil
}

// properties reads the properties of a row into m. delivery_mode is left out: messages are persistent.
func properties(m *amqp.Publishing, column []byte, texts *interner) error {
	v, err := message.ValueFromJSON(column, maxDepth)
	if err != nil {
		return errRow("properties: %w", err)
	}
	given, ok := v.(amqp.Table)
	if !ok && v != nil {
		return errRow("properties is not a JSON object")
	}
	for name, v := range given {
		if v == nil || name == "delivery_mode" {
			continue
		}
		if err := property(m, name, v, texts); err != nil {
			return errRow("property %.80q: %w", name, err)
		}
	}
	return nil
}

var (
	errNotText     = errors.New("not a string")
	errUnknown     = errors.New("there is none of this name")
	errUserID      = errors.New("it is the broker's user of this connection, and a row cannot set it")
	errPriority    = errors.New("not a number from 0 to 255")
	errExpiration  = errors.New("not a number of milliseconds")
	errTimestamp   = errors.New("neither a time such as 2026-01-31T12:00:00Z nor a number of seconds since 1970")
	textProperties = map[string]func(*amqp.Publishing) *string{
		"content_type":     func(m *amqp.Publishing) *string { return &m.ContentType },
		"content_encoding": func(m *amqp.Publishing) *string { return &m.ContentEncoding },
		"correlation_id":   func(m *amqp.Publishing) *string { return &m.CorrelationId },
		"reply_to":         func(m *amqp.Publishing) *string { return &m.ReplyTo },
		"type":             func(m *amqp.Publishing) *string { return &m.Type },
		"app_id":           func(m *amqp.Publishing) *string { return &m.AppId },
		"message_id":       func(m *amqp.Publishing) *string { return &m.MessageId },
	}
)

func property(m *amqp.Publishing, name string, v any, texts *interner) error {
	if at, found := textProperties[name]; found {
		s, ok := v.(string)
		if !ok {
			return errNotText
		}
		*at(m) = texts.keep(s)
		return nil
	}
	n, whole := v.(int64)
	s, text := v.(string)
	switch name {
	case "priority":
		if !whole || n < 0 || n > math.MaxUint8 {
			return errPriority
		}
		m.Priority = uint8(n)
	case "expiration":
		if whole {
			s = strconv.FormatInt(n, 10)
		}
		if _, err := strconv.ParseUint(s, 10, 32); err != nil {
			return errExpiration
		}
		m.Expiration = s
	case "timestamp":
		at, err := time.Parse(time.RFC3339, s)
		switch {
		case whole && n >= 0:
			at = time.Unix(n, 0)
		case !text || err != nil:
			return errTimestamp
		}
		m.Timestamp = at.Truncate(time.Second) // AMQP has no parts of seconds
	case "user_id":
		return errUserID
	default:
		return errUnknown
	}
	return nil
}

// interner keeps the texts that most rows have in common, so that each is there once.
type interner struct{ seen map[string]string }

const maxInterned = 1024

func (i *interner) text(b []byte) string {
	if s, found := i.seen[string(b)]; found {
		return s
	}
	return i.keep(string(b))
}

func (i *interner) keep(s string) string {
	if kept, found := i.seen[s]; found {
		return kept
	}
	if len(s) <= maxText && len(i.seen) < maxInterned {
		if i.seen == nil {
			i.seen = map[string]string{}
		}
		i.seen[s] = s
	}
	return s
}
