package amqpwire

import (
	"crypto/sha256"
	"encoding/json"
	"hash"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

// Fingerprint is the same for a message when it is published and when it is returned.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the fingerprint of a message that is published.
func FingerprintOf(exchange, key string, m *amqp.Publishing) Fingerprint {
	d := digestOf(exchange, key, m.Headers, amqpvalue.Properties(*m))
	_, _ = d.Write(m.Body)
	return Fingerprint(d.Sum(nil))
}

// digestOf returns the digest of everything but the body, which has to follow. It makes no difference between values
// that are equal on the wire, as typed JSON does not: int and int32, an empty table and none, times within the same
// second.
func digestOf(exchange, key string, headers amqp.Table, p amqpvalue.Properties) hash.Hash {
	p.DeliveryMode = 0 // only a message that is returned has it
	d := sha256.New()
	_ = json.NewEncoder(d).Encode([]any{ // what cannot fail: every value has a JSON form
		amqpvalue.ShortString(exchange), amqpvalue.ShortString(key), p, amqpvalue.TypedTable(headers),
	})
	return d
}
