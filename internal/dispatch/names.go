package dispatch

import "sidecar/internal/http1"

// names finds a header already written by a case-blind hash of its name: slots hold indexes into spans, plus one, and
// are more than twice as many as headers can be written.
type names struct {
	spans [maxHeaders]span
	used  int
	slots [256]uint8
}

// span is the place of a name in the request.
type span struct{ start, end int }

func (n *names) reset() {
	n.used = 0
	clear(n.slots[:])
}

// find returns the slot that holds the name at s of b, or the free one where it belongs.
func (n *names) find(b []byte, s span) (slot *uint8, found bool) {
	for h := foldedHash(b[s.start:s.end]); ; h++ {
		slot = &n.slots[uint8(h)] // #nosec G115 -- the low bits are the slot
		if *slot == 0 {
			return slot, false
		}
		if o := n.spans[*slot-1]; equalFold(b[o.start:o.end], b[s.start:s.end]) {
			return slot, true
		}
	}
}

func equalFold(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if http1.Lower(c) != http1.Lower(b[i]) {
			return false
		}
	}
	return true
}

// foldedHash is FNV-1a over the lower-cased bytes.
func foldedHash(b []byte) uint32 {
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(http1.Lower(c))) * 16777619
	}
	return h
}
