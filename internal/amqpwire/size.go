package amqpwire

import (
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// Fits returns an error if the message cannot be written as one method frame and one header frame of at most frameMax
// bytes each, or if the broker would close the channel over its reply-to. The errors are ErrInvalid and ErrTooLarge.
func Fits(exchange, key string, m *amqp.Publishing, frameMax int) error {
	size := headerFixed + 8 + 1 + 1 // timestamp, priority, delivery mode
	for _, short := range [...]struct{ name, value string }{
		{"exchange", exchange}, {"routing key", key}, {"content type", m.ContentType},
		{"content encoding", m.ContentEncoding}, {"correlation id", m.CorrelationId}, {"reply-to", m.ReplyTo},
		{"expiration", m.Expiration}, {"message id", m.MessageId}, {"type", m.Type}, {"user id", m.UserId},
		{"app id", m.AppId},
	} {
		if len(short.value) > amqpvalue.ShortMax {
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
	table, err := amqpvalue.TableSize(m.Headers)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if size += table; frameMax > 0 && size > frameMax-frameHead-frameTail {
		return fmt.Errorf("%w: about %d of %d bytes", ErrTooLarge, size, frameMax-frameHead-frameTail)
	}
	return nil
}
