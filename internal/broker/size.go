package broker

import (
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

const shortMax = 255

// TableSize is the number of bytes t takes in a frame, its own length included. It returns ErrInvalid for what the
// client library would refuse only after it had begun to write, which costs the whole connection: a key longer than 255
// bytes or a value of a type AMQP does not have.
func TableSize(t amqp.Table) (int, error) {
	size := 4
	for k, v := range t {
		if len(k) > shortMax {
			return 0, fmt.Errorf("%w: header name of %d bytes", ErrInvalid, len(k))
		}
		n, err := fieldSize(v)
		if err != nil {
			return 0, fmt.Errorf("header %q: %w", k, err)
		}
		size += 1 + len(k) + n
	}
	return size, nil
}

// fieldSize is the size of a value with its type byte.
func fieldSize(v any) (int, error) {
	switch v := v.(type) {
	case nil:
		return 1, nil
	case bool, byte, int8:
		return 2, nil
	case int16, uint16:
		return 3, nil
	case int, int32, uint32, float32:
		return 5, nil
	case amqp.Decimal:
		return 6, nil
	case int64, float64, time.Time:
		return 9, nil
	case string:
		return 5 + len(v), nil
	case []byte:
		return 5 + len(v), nil
	case amqp.Table:
		n, err := TableSize(v)
		return 1 + n, err
	case []any:
		size := 5
		for _, e := range v {
			n, err := fieldSize(e)
			if err != nil {
				return 0, err
			}
			size += n
		}
		return size, nil
	}
	return 0, fmt.Errorf("%w: type %T", ErrInvalid, v)
}

// fits checks that p can be written as one method frame and one header frame of at most frameMax bytes each, and that the
// broker would not close the channel over its reply-to.
func (p *Publication) fits(frameMax int) error {
	m := &p.Msg
	size := headerFixed + 8 + 1 + 1 // timestamp, priority, delivery mode
	for _, short := range [...]struct{ name, value string }{
		{"exchange", p.Exchange}, {"routing key", p.Key}, {"content type", m.ContentType},
		{"content encoding", m.ContentEncoding}, {"correlation id", m.CorrelationId}, {"reply-to", m.ReplyTo},
		{"expiration", m.Expiration}, {"message id", m.MessageId}, {"type", m.Type}, {"user id", m.UserId}, {"app id", m.AppId},
	} {
		if len(short.value) > shortMax {
			return fmt.Errorf("%w: %s of %d bytes", ErrInvalid, short.name, len(short.value))
		}
		size += 1 + len(short.value)
	}
	if m.ReplyTo == message.DirectReply {
		return fmt.Errorf("%w: reply-to %q: want the name of a queue", ErrInvalid, m.ReplyTo)
	}
	if m.Expiration != "" {
		if _, err := strconv.ParseUint(m.Expiration, 10, 32); err != nil {
			return fmt.Errorf("%w: expiration %.40q: want milliseconds", ErrInvalid, m.Expiration)
		}
	}
	table, err := TableSize(m.Headers)
	if err != nil {
		return err
	}
	if size += table; frameMax > 0 && size > frameMax-frameHead-frameTail {
		return fmt.Errorf("%w: about %d of %d bytes", ErrTooLarge, size, frameMax-frameHead-frameTail)
	}
	return nil
}
