package amqpwire

import (
	"encoding/binary"
	"hash/maphash"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// identity hashes a delivery while it is received, with a seed of this process: two messages that differ in any byte
// of their routing, properties, headers or body have different identities, and all deliveries of one message have the
// same. It reads the bytes of the wire, which have lengths and types, and where absent differs from empty.
//
// From one delivery to the next a broker changes the flag redelivered and counts in the header table, which it also
// adds to a message without headers. These are left out, and so is the order of the entries, which such a broker
// writes anew.
type identity struct{ sum maphash.Hash }

var identitySeed = maphash.MakeSeed()

// begin takes the routing: the last two short strings of basic.deliver.
func (x *identity) begin(routing []byte) {
	x.sum.SetSeed(identitySeed)
	_, _ = x.sum.Write(routing)
}

// header takes the payload of a content header as the broker sent it. The size of the body is in it, so that the body,
// which follows, cannot be taken for a part of the properties.
func (x *identity) header(payload []byte) {
	var entries uint64
	start, end, ok := headerTable(payload)
	if !ok {
		_, _ = x.sum.Write(payload)
	} else {
		entries = hashEntries(payload[start:end])
		_, _ = x.sum.Write(payload[:headerFixed-2])
		_, _ = x.sum.Write([]byte{payload[headerFixed-2] &^ (flagHeaders >> 8), payload[headerFixed-1]})
		_, _ = x.sum.Write(payload[headerFixed : start-4])
		_, _ = x.sum.Write(payload[end:])
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], entries)
	_, _ = x.sum.Write(b[:])
}

// end returns the hash, which is never 0.
func (x *identity) end() uint64 { return max(1, x.sum.Sum64()) }

// hashEntries returns the sum of the hashes of a table's entries, without those that the broker writes. Bytes that are
// not a well-formed entry are hashed together with all that follow.
func hashEntries(table []byte) (sum uint64) {
	for at := 0; at < len(table); {
		end := len(table)
		if kind := at + 1 + int(table[at]); kind < len(table) {
			end = valueEnd(table, kind)
			switch string(table[at+1 : kind]) {
			case message.HeaderDeliveryCount, message.HeaderAcquiredCount:
				at = end
				continue
			}
		}
		sum += maphash.Bytes(identitySeed, table[at:end])
		at = end
	}
	return sum
}

// valueEnd returns where the value ends whose type byte is b[at], len(b) if that cannot be read.
func valueEnd(b []byte, at int) int {
	size := amqpvalue.FixedSize(b[at])
	switch b[at] {
	case 'V':
		return at + 1
	case 'L':
		size = 8
	case 'S', 'x', 'A', 'F':
		if len(b)-at < 5 {
			return len(b)
		}
		size = 4 + int(binary.BigEndian.Uint32(b[at+1:]))
	}
	if size <= 0 || size > len(b)-at-1 {
		return len(b)
	}
	return at + 1 + size
}
