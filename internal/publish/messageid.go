package publish

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// messageIDs makes the ids of messages that have none: UUIDs of version 7, which sort by time. Those of a batch rise
// from one random number, so that the answer can name each without keeping it.
type messageIDs [16]byte

func newMessageIDs() (m messageIDs) {
	binary.BigEndian.PutUint64(m[:], uint64(time.Now().UnixMilli())<<16|7<<12|rand.Uint64()>>52) // #nosec G115 G404
	binary.BigEndian.PutUint64(m[8:], 1<<63|rand.Uint64()>>2)                                    // #nosec G404
	return m
}

// at returns the id of the message at this index of a batch.
func (m messageIDs) at(index int) string {
	binary.BigEndian.PutUint32(m[12:], binary.BigEndian.Uint32(m[12:])+uint32(index)) // #nosec G115 -- at most maxItems
	s := hex.EncodeToString(m[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// identify gives a message without an id a new one. It returns the id as the client has written it, or the new one.
func identify(h map[string][]string, m *outgoing) []string {
	if m.msg.MessageId == "" {
		m.msg.MessageId = newMessageIDs().at(0)
		return []string{m.msg.MessageId}
	}
	return append(h["Idempotency-Key"], h["Amqp-Message-Id"]...)[:1]
}
