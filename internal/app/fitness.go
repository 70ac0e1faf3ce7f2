package app

import (
	"slices"
	"sync"

	"sidecar/internal/topology"
)

// aspect is one of the looks that are taken at the topology, each on the connection it is about.
type aspect uint8

const (
	objects    aspect = iota // exchanges, queues and bindings: on the connection that consumes
	publishing               // whether the user may publish: on the one that publishes
	routes                   // what publishing has shown: a message that found no queue
	aspects
)

// fitness is what the last looks at the topology found.
type fitness struct {
	mu       sync.Mutex
	looked   bool // at the objects
	findings [aspects][]topology.Finding
}

// set remembers what a look found and reports whether that is news.
func (f *fitness) set(of aspect, findings []topology.Finding) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := !slices.Equal(f.findings[of], findings)
	f.looked = f.looked || of == objects
	f.findings[of] = findings
	return changed
}

func (f *fitness) bad() bool {
	all, _ := f.last()
	return len(all) > 0
}

// last returns what is wrong, of all aspects, and whether anybody has looked yet.
func (f *fitness) last() (findings []topology.Finding, looked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(f.findings[:]...), f.looked
}
