package outbox

import (
	"testing"

	"sidecar/internal/broker"
)

// TestBodiesUseMemoryAgain: the bodies of a batch take the memory of the last one, but for a batch with a row that was
// not sent, whose body may still be read, and for what is larger than the bound.
func TestBodiesUseMemoryAgain(t *testing.T) {
	t.Parallel()
	s := &session{r: &Relay{}}
	p := &publishing{s: s, batch: &batch{}}
	batchOf := func(body string, err error) []byte {
		x := &row{size: len(body)}
		x.first = x
		s.makeRoom([]*row{x})
		kept := s.keep([]byte(body))
		p.record(x, err)
		return kept
	}
	ended := make(chan struct{})
	close(ended)
	first := batchOf("first", nil)
	untried := batchOf("other", &broker.UntriedError{Err: broker.ErrBusy, Ended: ended})
	if string(first) != "other" {
		t.Errorf("%s: the memory of a batch that was sent is not used again", first)
	}
	if batchOf("third", nil); string(untried) != "other" {
		t.Errorf("a body that is still read became %s", untried)
	}
	if large := batchOf(string(make([]byte, maxBodies+1)), nil); len(large) != maxBodies+1 || cap(s.bodies) > maxBodies {
		t.Errorf("%d bytes of %d, and memory for %d", len(large), maxBodies+1, cap(s.bodies))
	}
}
