package publish

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// firstID is the id that a message without one gets, a UUID of version 7: those sort by time. The ids of a batch rise
// from that of its first message, so that the answer can name each without keeping it.
type firstID uuid.UUID

func newFirstID() firstID { return firstID(uuid.Must(uuid.NewV7())) }

// at returns the id of the message at this index of a batch.
func (id firstID) at(index int) string {
	binary.BigEndian.PutUint32(id[12:], binary.BigEndian.Uint32(id[12:])+uint32(index)) // #nosec G115 -- at most maxItems
	return uuid.UUID(id).String()
}

// identify gives a message without an id a new one. It returns the id as the client has written it, or the new one.
func identify(h map[string][]string, m *outgoing) []string {
	if m.msg.MessageId == "" {
		m.msg.MessageId = newFirstID().at(0)
		return []string{m.msg.MessageId}
	}
	return append(h["Idempotency-Key"], h["Amqp-Message-Id"]...)[:1]
}
