package brokertest

import (
	"io"
	"sync"
)

// gate lets bytes through while it is open and holds them while it is shut.
type gate struct {
	mu   sync.Mutex
	cond *sync.Cond
	held bool
}

func newGate() *gate {
	g := &gate{}
	g.cond = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(held bool) {
	g.mu.Lock()
	g.held = held
	g.mu.Unlock()
	g.cond.Broadcast()
}

func (g *gate) open() { g.set(false) }
func (g *gate) shut() { g.set(true) }

func (g *gate) wait() {
	g.mu.Lock()
	for g.held {
		g.cond.Wait()
	}
	g.mu.Unlock()
}

func (g *gate) copy(dst io.Writer, src io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		g.wait()
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
