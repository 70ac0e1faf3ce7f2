package publish

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// The headers of a request that become parts of a message: those that package dispatch writes for a delivery, so that
// an app may pass on the headers that it has received.
const (
	propertyPrefix  = "Amqp-"
	headerPrefix    = "Amqp-Header-"
	attributePrefix = "Ce-"
	ceSpecVersion   = "Ce-Specversion"
	ceContentType   = "Ce-Datacontenttype"
	cloudEvent      = "cloudEvents_" // as the CloudEvents binding for AMQP names its headers
	contentType     = "Content-Type"
	contentEncoding = "Content-Encoding"
	idempotencyKey  = "Idempotency-Key"
	amqpEncoding    = "Amqp-Content-Encoding" // of an encoding that HTTP does not have
)

// propertyHeaders are the headers that set a property, by the name of the property in JSON.
var propertyHeaders = map[string]string{
	contentType: "content_type", contentEncoding: "content_encoding", amqpEncoding: "content_encoding",
	"Amqp-Message-Id":     "message_id",
	"Amqp-Correlation-Id": "correlation_id", "Amqp-Reply-To": "reply_to", "Amqp-Type": "type", "Amqp-App-Id": "app_id",
	"Amqp-Priority": "priority", "Amqp-Expiration": "expiration", "Amqp-Timestamp": "timestamp",
}

// deliveryHeaders describe the delivery of another message and are ignored. The user id is that of the sidecar's own
// connection, or absent.
var deliveryHeaders = map[string]bool{
	"Amqp-Queue": true, "Amqp-Exchange": true, "Amqp-Routing-Key": true, "Amqp-Delivery-Attempt": true,
	"Amqp-Retry-Count": true, "Amqp-Max-Retries": true, "Amqp-Redelivered": true, "Amqp-Last-Attempt": true,
	"Amqp-Headers-Truncated": true, "Amqp-User-Id": true,
}

// readHeaders returns the message of these headers, whose names are in the canonical form of net/http. Headers of the
// transport and headers that must not be published are left out; an invalid one is a failure that names it.
func readHeaders(h map[string][]string) (amqp.Publishing, *failure) {
	var m amqp.Publishing
	_, event := h[ceSpecVersion]
	for name, values := range h {
		property := propertyHeaders[name]
		key, isOwn := ownHeader(name, event)
		switch {
		case property != "", isOwn:
		case strings.HasPrefix(name, propertyPrefix) && !strings.HasPrefix(name, headerPrefix) && !deliveryHeaders[name]:
			return m, bad("%.100s is not a property. A header of the message's own is Amqp-Header-<name>.", name)
		default:
			continue
		}
		value, f := decoded(name, values)
		switch {
		case f != nil:
		case property != "":
			f = setProperty(&m, name, property, value)
		case m.Headers == nil:
			m.Headers = amqp.Table{key: value}
		default:
			m.Headers[key] = value
		}
		if f != nil {
			return m, f
		}
	}
	if h[contentEncoding] != nil && h[amqpEncoding] != nil {
		return m, bad("%s and %s are both set; one of them is enough.", contentEncoding, amqpEncoding)
	}
	return m, readKey(&m, h)
}

// ownHeader returns the key of the message's own header that a header of the request sets. isOwn is false if it sets
// none, or one that must not be published.
func ownHeader(name string, event bool) (key string, isOwn bool) {
	switch {
	case strings.HasPrefix(name, headerPrefix):
		key = strings.ToLower(name[len(headerPrefix):])
		return key, !message.Reserved(key)
	case event && strings.HasPrefix(name, attributePrefix) && name != ceContentType: // that is the content type
		return cloudEvent + strings.ToLower(name[len(attributePrefix):]), true
	}
	return "", false
}

// readKey sets the message id to the idempotency key. Without one an event is named by its source and id, which
// together are unique, so that consumers
// recognise a second publish of the event.
func readKey(m *amqp.Publishing, h map[string][]string) *failure {
	values, found := h[idempotencyKey]
	if !found {
		source, _ := m.Headers[cloudEvent+"source"].(string)
		id, _ := m.Headers[cloudEvent+"id"].(string)
		if source != "" && !strings.Contains(source, " ") && id != "" && m.MessageId == "" { // a source is a URI
			if m.MessageId = source + " " + id; len(m.MessageId) > amqpvalue.ShortMax {
				m.MessageId = fmt.Sprintf("%x", sha256.Sum256([]byte(m.MessageId)))
			}
		}
		return nil
	}
	const name = idempotencyKey
	key, f := decoded(name, values)
	switch {
	case f != nil:
		return f
	case key == "":
		return bad("%s is empty.", name)
	case m.MessageId != "" && m.MessageId != key:
		return bad("%s and Amqp-Message-Id differ; one of them is enough.", name)
	}
	return setProperty(m, name, "message_id", key)
}

// setProperty sets a property of m; name is that of its header or field.
func setProperty(m *amqp.Publishing, name, property string, value any) *failure {
	if err := amqpvalue.SetProperty(m, property, value); err != nil {
		return bad("%.100s %s.", name, err)
	}
	return notExpired(m, name)
}

// notExpired refuses an expiration of 0; name is that of its header or field.
func notExpired(m *amqp.Publishing, name string) *failure {
	// With 0 the broker drops the message unless a consumer takes it at once, and confirms it all the same.
	if m.Expiration != "" && strings.Trim(m.Expiration, "0") == "" {
		return bad("%s is 0; it must be milliseconds, an integer from 1 to 4294967295.", name)
	}
	return nil
}

var quotedPair = regexp.MustCompile(`(?s)\\(.)`)

// decoded returns the one value of a header, percent-decoded unless it is the content type.
func decoded(name string, values []string) (string, *failure) {
	if len(values) != 1 {
		return "", bad("%.100s is there %d times; it must be there once.", name, len(values))
	}
	v := values[0]
	if name == contentType {
		return v, nil
	}
	attribute := strings.HasPrefix(name, attributePrefix)
	if (attribute || name == idempotencyKey) && len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' {
		// The binding of CloudEvents allows a quoted string; the draft of the key's header demands one.
		v = quotedPair.ReplaceAllString(v[1:len(v)-1], "$1")
	}
	v, err := url.PathUnescape(v) // of %XX; no other character is special
	switch {
	case err != nil:
		return "", bad("%.100s is not percent-encoded correctly: a '%%' itself is %%25.", name)
	case attribute && !utf8.ValidString(v):
		return "", bad("%.100s is not UTF-8, as an attribute of CloudEvents has to be.", name)
	}
	return v, nil
}

// carrierOf returns the trace context of a request. The W3C allows tracestate and baggage in several lines; two
// traceparents count as none.
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
