package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// TestPieces: what is slow, narrow or sliced arrives piece by piece. Cut, refused and frozen links are covered by the tests
// of the sidecar.
func TestPieces(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	p := must.Get(Start(Options{Target: l.Addr().String()}))(t)
	defer p.Close()
	p.Set(Shape{Latency: 10 * time.Millisecond, Jitter: time.Millisecond, Rate: 1000, Slice: 1})
	began := time.Now()
	c := must.Get(net.Dial("tcp", p.Addr()))(t)
	defer func() { _ = c.Close() }()
	if got, err := io.ReadAll(c); string(got) != "hello" || err != nil {
		t.Errorf("%q arrived: %v", got, err)
	}
	if took := time.Since(began); took < 50*time.Millisecond { // five pieces of one byte, one after the other
		t.Errorf("five pieces took %v", took)
	}
}
