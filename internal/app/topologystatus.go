package app

import (
	"slices"
	"sync"

	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// aspect is one kind of check of the topology.
type aspect uint8

const (
	objects    aspect = iota // exchanges, queues and bindings: on the connection that consumes
	publishing               // whether the user may publish: on the connection that publishes
	routes                   // a publication that reached no queue
	delays                   // a rejected message that was delivered again at once
	aspects
)

// topologyStatus holds the findings of the last checks.
type topologyStatus struct {
	mu       sync.Mutex
	checked  bool // the objects
	findings [aspects][]declare.Finding
}

// set stores the findings of one aspect and reports whether they have changed.
func (t *topologyStatus) set(of aspect, findings []declare.Finding) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := !slices.Equal(t.findings[of], findings)
	t.checked = t.checked || of == objects
	t.findings[of] = findings
	return changed
}

func (t *topologyStatus) bad() bool {
	all, _ := t.last()
	return len(all) > 0
}

// last returns the findings of all aspects by which nothing is consumed, and whether the objects have been checked yet.
func (t *topologyStatus) last() (findings []declare.Finding, checked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return declare.Blocking(slices.Concat(t.findings[:]...)), t.checked
}

// tolerated returns what is not as planned and is used all the same.
func (t *topologyStatus) tolerated() []declare.Finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.findings[objects]), func(f declare.Finding) bool {
		return f.Judgement == topology.Breaks
	})
}
