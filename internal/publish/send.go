package publish

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// outgoing is one message to be published.
type outgoing struct {
	alias, exchange, key string
	msg                  amqp.Publishing
	trace                telemetry.Carrier
	err                  error // of the broker
}

// address returns a message to the exchange of this alias, if the alias and the routing key are allowed.
func (s *Server) address(alias, key string) (outgoing, *failure) {
	m := outgoing{alias: alias, key: key}
	var found bool
	if m.exchange, found = s.o.Exchanges[alias]; !found {
		return outgoing{}, fail(forbidden, "There is no exchange alias %.100q in SIDECAR_PUBLISH_EXCHANGES. The aliases are "+
			"%s.", alias, strings.Join(slices.Sorted(maps.Keys(s.o.Exchanges)), ", "))
	}
	if len(key) > amqpvalue.ShortMax {
		return m, bad("The routing key has %d bytes; AMQP allows %d.", len(key), amqpvalue.ShortMax)
	}
	if !s.keys.Match(key) {
		return m, fail(forbidden, "The routing key %.100q is not among those of SIDECAR_PUBLISH_ROUTING_KEYS.", key)
	}
	return m, nil
}

// aliasOf returns exchange if it is an alias; else the first alias of the exchange of this name, if there is one.
func (s *Server) aliasOf(exchange string) string {
	if _, isAlias := s.o.Exchanges[exchange]; isAlias {
		return exchange
	}
	return cmp.Or(s.aliases[exchange], exchange)
}

// firstID is the id that a message without one gets, a UUID of version 7: those sort by time. The ids of a batch rise
// from that of its first message, so that the answer can name each without keeping it.
type firstID uuid.UUID

func newFirstID() firstID { return firstID(uuid.Must(uuid.NewV7())) }

// at returns the id of the message at this index of a batch.
func (id firstID) at(index int) string {
	binary.BigEndian.PutUint32(id[12:], binary.BigEndian.Uint32(id[12:])+uint32(index)) // #nosec G115 -- at most maxItems
	return uuid.UUID(id).String()
}

// identify gives a message without an id a new one. It returns the id, percent-encoded where it is not printable ASCII,
// '%' or a quote, because a terminal may obey some of these bytes: sent again in either header it is the same id.
func identify(m *outgoing) []string {
	if m.msg.MessageId == "" {
		m.msg.MessageId = newFirstID().at(0)
	}
	var id []byte
	for _, c := range []byte(m.msg.MessageId) {
		if c < ' ' || c > '~' || c == '%' || c == '"' {
			id = fmt.Appendf(id, "%%%02X", c)
		} else {
			id = append(id, c)
		}
	}
	return []string{string(id)}
}

// ready returns the reason why no message can be sent now; nil when one would be tried.
func (s *Server) ready() *failure {
	switch {
	case s.stopping.Load():
		return errStopping
	case !s.o.Publisher.Connected():
		return failureOf(broker.ErrDisconnected)
	case s.o.Publisher.Blocked():
		return failureOf(broker.ErrBlocked)
	}
	return nil
}

// begin writes a message. wait returns nil when the broker has confirmed it. The request's own context is not used: a
// client that disconnects in the middle of a write must not cost the connection that others write on.
func (s *Server) begin(ctx context.Context, m *outgoing) (wait func() *failure) {
	span := s.o.Tracing.Produce(m.trace, telemetry.Attrs{
		MessageID: m.msg.MessageId, CorrelationID: m.msg.CorrelationId, Broker: s.o.Publisher,
		Exchange: m.exchange, RoutingKey: m.key, BodySize: len(m.msg.Body), Timestamp: m.msg.Timestamp,
	})
	m.msg.Headers = span.Carrier().Inject(m.msg.Headers)
	pub := message.Publication{Kind: message.KindPublish, Key: m.key, Msg: m.msg}
	s.underway.Add(1)
	confirmed, err := s.lanes[m.exchange].Begin(ctx, &pub)
	return func() *failure {
		if err == nil {
			err = confirmed()
		}
		s.underway.Add(-1)
		if m.err = err; err == nil {
			span.Produced(string(published), nil)
			return nil
		}
		f := failureOf(err)
		if back, ok := errors.AsType[*broker.ReturnedError](err); ok {
			f.detail = s.unbound(back)
		}
		span.Produced(string(f.code), err)
		s.failures.Do(func(suppressed int) {
			s.o.Logger.Warn("message not published", "exchange", m.alias, "routing_key", m.key, "message_id", m.msg.MessageId,
				"code", string(f.code), "error", err, "trace_id", span.TraceID(), "suppressed", suppressed)
		})
		return f
	}
}

// unbound says which binding a returned message lacks, and which there are.
func (s *Server) unbound(back *broker.ReturnedError) string {
	if back.Exchange == "" {
		return fmt.Sprintf("The message was not kept: the routing key of the default exchange names the queue %q, which "+
			"does not exist.", back.Key)
	}
	return fmt.Sprintf("The message was not kept: no queue is bound to exchange %q by a key that matches %q. This "+
		"service's queues are bound by %s.", back.Exchange, back.Key, cmp.Or(s.o.Bindings[back.Exchange], "none"))
}

// prefer returns a, or b when a does not belong to a trace.
func prefer(a, b telemetry.Carrier) telemetry.Carrier {
	if a.Traceparent == "" && (b.Traceparent != "" || a.Baggage == "") {
		return b
	}
	return a
}
