package dispatch

import (
	"net"
	"sync"
)

// scratch is the memory of one attempt: the request's bytes and the answer's. It is lent from a pool rather than owned
// by a connection, so that idle connections hold none and an app that closes after every answer costs none.
type scratch struct {
	request request
	answer  answer
	parts   [2][]byte
	vector  net.Buffers
}

// keptBuffer is the size up to which a grown buffer is kept for the next attempt.
const keptBuffer = 32 << 10

var scratches = sync.Pool{New: func() any {
	s := &scratch{}
	s.request.out = make([]byte, 0, 2<<10)
	s.answer.in.buf = make([]byte, 4<<10)
	return s
}}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

// release gives s back without any reference to the message it served.
func (s *scratch) release() {
	s.parts = [2][]byte{}
	s.vector = nil
	s.request.forget()
	s.answer.forget()
	if cap(s.request.out) > keptBuffer || cap(s.answer.in.buf) > keptBuffer {
		return
	}
	scratches.Put(s)
}
