package crash

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"sidecar/internal/message"
)

// hashed is how much of a body goes into an identity, in bytes. Its length goes in whole.
const hashed = 64 << 10

// identity distinguishes messages across restarts and across trips through the retry queue, so nothing is in it that a
// broker or a republish changes. Messages without an id that are equal in everything have the same one: what one of
// them does, the others do.
type identity [16]byte

// hasher makes identities without allocating. One per worker.
type hasher struct {
	h   hash.Hash
	buf []byte
}

func newHasher() hasher { return hasher{h: sha256.New(), buf: make([]byte, 0, 512)} }

func (x *hasher) identify(m *message.Message) (id identity) {
	exchange, key := m.Exchange, m.RoutingKey
	if m.HasOriginal {
		exchange, key = m.OriginalExchange, m.OriginalRoutingKey
	}
	b := x.buf[:0]
	for _, s := range [...]string{m.MessageID, m.CorrelationID, m.Type, m.AppID, m.ContentType, exchange, key} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	var at int64
	if !m.Timestamp.IsZero() {
		at = m.Timestamp.Unix()
	}
	b = binary.AppendVarint(b, at)
	b = binary.AppendUvarint(b, uint64(len(m.Body)))
	x.h.Reset()
	x.h.Write(b)
	x.h.Write(m.Body[:min(len(m.Body), hashed)])
	x.buf = b
	copy(id[:], x.h.Sum(b[:0]))
	return id
}
