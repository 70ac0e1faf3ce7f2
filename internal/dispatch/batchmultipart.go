package dispatch

import (
	"crypto/rand"

	"sidecar/internal/message"
)

// add appends m as a part, with the header fields and the body of a request with m alone. No publisher knows the
// boundary, so no body can end its part.
func (b *batch) add(t *Target, m *message.Message) {
	if len(b.out) == 0 {
		b.boundary = rand.Text()
	}
	r := &b.part
	r.inJSON, r.out = false, append(append(append(b.out, "--"...), b.boundary...), '\r', '\n')
	r.fields(t, m)
	b.out = append(append(r.out, m.Body...), '\r', '\n')
}

func (b *batch) endParts() {
	b.out = append(append(append(b.out, "--"...), b.boundary...), "--\r\n"...)
}
