package amqpwire

import (
	"crypto/sha256"
	"hash"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

// Fingerprint is the same for a message when it is published and when it is returned.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the fingerprint of a message that is published.
func FingerprintOf(exchange, key string, m *amqp.Publishing) Fingerprint {
	d := digestOf(exchange, key, *m)
	_, _ = d.Write(m.Body)
	return Fingerprint(d.Sum(nil))
}

// digestOf returns the digest of everything but the body, which has to follow. It makes no difference between values
// that are equal on the wire, as a line does not: int and int32, an empty table and none, times within the same second.
func digestOf(exchange, key string, m amqp.Publishing) hash.Hash {
	m.DeliveryMode = 0 // only a message that is returned has it
	d := sha256.New()
	_, _ = d.Write(append(amqpvalue.AppendHead(nil, exchange, key, &m), '}'))
	return d
}
