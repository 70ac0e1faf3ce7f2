package publish

import (
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// The headers that carry a message. What package dispatch writes for a delivery is read here, so that an app may hand on
// what it has received.
const (
	propertyPrefix  = "Amqp-"
	headerPrefix    = "Amqp-Header-"
	attributePrefix = "Ce-"
	ceSpecVersion   = "Ce-Specversion"
	cloudEvent      = "cloudEvents_" // as the CloudEvents binding for AMQP names its headers

	// maxShort is how long a property may be in AMQP, in bytes.
	maxShort = 255
)

// ofDeliveries are headers that say how a message was delivered. They mean nothing for another one. The user id is that of
// our own connection, or none.
var ofDeliveries = map[string]bool{
	"Amqp-Queue": true, "Amqp-Exchange": true, "Amqp-Routing-Key": true, "Amqp-Original-Exchange": true,
	"Amqp-Original-Routing-Key": true, "Amqp-Delivery-Attempt": true, "Amqp-Retry-Count": true, "Amqp-Max-Retries": true,
	"Amqp-Redelivered": true, "Amqp-Last-Attempt": true, "Amqp-Headers-Truncated": true, "Amqp-User-Id": true,
}

// readHeaders makes a message of the headers that carry it; their names are in the canonical form of net/http. Other headers
// are the transport's. What must not be published is left out, what cannot be understood is a failure that names it.
func readHeaders(h map[string][]string) (amqp.Publishing, *failure) {
	var m amqp.Publishing
	_, event := h[ceSpecVersion]
	for name, values := range h {
		var failed *failure
		switch {
		case strings.HasPrefix(name, headerPrefix):
			failed = readHeader(&m, name, strings.ToLower(name[len(headerPrefix):]), values)
		case strings.HasPrefix(name, propertyPrefix):
			failed = readProperty(&m, name, values)
		case event && strings.HasPrefix(name, attributePrefix):
			failed = readAttribute(&m, name, values)
		case name == "Content-Type":
			var v string
			if v, failed = single(name, values); failed == nil {
				failed = setShort(&m.ContentType, name, v)
			}
		case name == "Content-Encoding":
			failed = readText(&m.ContentEncoding, name, values)
		}
		if failed != nil {
			return m, failed
		}
	}
	return m, readKey(&m, h)
}

// readKey takes the idempotency key for the message id.
func readKey(m *amqp.Publishing, h map[string][]string) *failure {
	const name = "Idempotency-Key"
	values, found := h[name]
	if !found {
		return nil
	}
	key := ""
	switch failed := readText(&key, name, values); {
	case failed != nil:
		return failed
	case key == "":
		return bad("%s is empty.", name)
	case m.MessageId != "" && m.MessageId != key:
		return bad("%s and Amqp-Message-Id differ; one of them is enough.", name)
	}
	m.MessageId = key
	return nil
}

// readProperty reads a header Amqp-* that is not one of the message's own headers. An empty value is an absent property.
func readProperty(m *amqp.Publishing, name string, values []string) *failure {
	switch name {
	case "Amqp-Message-Id":
		return readText(&m.MessageId, name, values)
	case "Amqp-Correlation-Id":
		return readText(&m.CorrelationId, name, values)
	case "Amqp-Reply-To":
		return readText(&m.ReplyTo, name, values)
	case "Amqp-Type":
		return readText(&m.Type, name, values)
	case "Amqp-App-Id":
		return readText(&m.AppId, name, values)
	}
	if ofDeliveries[name] {
		return nil
	}
	value := ""
	if failed := readText(&value, name, values); failed != nil {
		return failed
	}
	switch name {
	case "Amqp-Priority":
		return setPriority(&m.Priority, name, value)
	case "Amqp-Expiration":
		return setExpiration(&m.Expiration, name, value)
	case "Amqp-Timestamp":
		return setTimestamp(&m.Timestamp, name, value)
	}
	return bad("%.100s is no property. A header of the message's own is Amqp-Header-<name>.", name)
}

func setPriority(to *uint8, name, value string) *failure {
	if value == "" {
		return nil
	}
	n, err := strconv.ParseUint(value, 10, 8)
	if err != nil {
		return bad("%s is %.40q; it must be an integer from 0 to 255.", name, value)
	}
	*to = uint8(n)
	return nil
}

func setExpiration(to *string, name, value string) *failure {
	if value == "" {
		return nil
	}
	// With 0 the broker drops the message unless a consumer takes it at once, and confirms it all the same.
	if n, err := strconv.ParseUint(value, 10, 32); err != nil || n == 0 {
		return bad("%s is %.40q; it must be milliseconds, an integer from 1 to 4294967295.", name, value)
	}
	*to = value
	return nil
}

// setTimestamp reads RFC 3339. AMQP has whole seconds.
func setTimestamp(to *time.Time, name, value string) *failure {
	if value == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return bad("%s is %.40q; it must be a time as in 2026-07-01T12:00:00Z.", name, value)
	}
	if *to = at.UTC().Truncate(time.Second); to.IsZero() { // which the client library takes for none, and leaves out
		return bad("%s is %.40q, a time that cannot be sent.", name, value)
	}
	return nil
}

func readHeader(m *amqp.Publishing, name, key string, values []string) *failure {
	if message.Reserved(key) {
		return nil
	}
	value, failed := decoded(name, values)
	if failed == nil {
		put(m, key, value)
	}
	return failed
}

// readAttribute reads an attribute of a CloudEvent in binary mode. The content type is the attribute datacontenttype.
func readAttribute(m *amqp.Publishing, name string, values []string) *failure {
	attribute := strings.ToLower(name[len(attributePrefix):])
	if attribute == "datacontenttype" {
		return nil
	}
	v, failed := single(name, values)
	if failed != nil {
		return failed
	}
	if len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' { // the binding allows a quoted string
		v = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(v[1 : len(v)-1])
	}
	if v, failed = unescape(name, v); failed == nil {
		put(m, cloudEvent+attribute, v)
	}
	return failed
}

func put(m *amqp.Publishing, key string, value any) {
	if m.Headers == nil {
		m.Headers = amqp.Table{}
	}
	m.Headers[key] = value
}

func readText(to *string, name string, values []string) *failure {
	v, failed := decoded(name, values)
	if failed != nil {
		return failed
	}
	return setShort(to, name, v)
}

func setShort(to *string, name, value string) *failure {
	if len(value) > maxShort {
		return bad("%s has %d bytes; AMQP allows %d.", name, len(value), maxShort)
	}
	*to = value
	return nil
}

func single(name string, values []string) (string, *failure) {
	if len(values) != 1 {
		return "", bad("%.100s is there %d times; it must be there once.", name, len(values))
	}
	return values[0], nil
}

func decoded(name string, values []string) (string, *failure) {
	v, failed := single(name, values)
	if failed != nil {
		return "", failed
	}
	return unescape(name, v)
}

// unescape decodes %XX; nothing else is special.
func unescape(name, v string) (string, *failure) {
	i := strings.IndexByte(v, '%')
	if i < 0 {
		return v, nil
	}
	b := make([]byte, 0, len(v))
	b = append(b, v[:i]...)
	for ; i < len(v); i++ {
		if v[i] != '%' {
			b = append(b, v[i])
			continue
		}
		if i+2 >= len(v) || !isHex(v[i+1]) || !isHex(v[i+2]) {
			return "", bad("%.100s is not percent-encoded correctly: a '%%' itself is %%25.", name)
		}
		b = append(b, nibble(v[i+1])<<4|nibble(v[i+2]))
		i += 2
	}
	return string(b), nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func nibble(c byte) byte {
	if c >= 'A' {
		return c&0xf + 9
	}
	return c & 0xf
}

// carrierOf reads the trace context of a request. The W3C allows the latter two in several lines; two parents are none.
func carrierOf(h map[string][]string) telemetry.Carrier {
	c := telemetry.Carrier{
		Tracestate: strings.Join(h["Tracestate"], ","),
		Baggage:    strings.Join(h["Baggage"], ","),
	}
	if parents := h["Traceparent"]; len(parents) == 1 {
		c.Traceparent = parents[0]
	}
	return c
}
