package app

import (
	"slices"
	"sync"

	"sidecar/internal/topology"
)

// fitness remembers how the topology looked the last time, for the log, /readyz and /status.
type fitness struct {
	mu       sync.Mutex
	looked   bool
	findings []topology.Finding
}

// set reports whether anything is different from the last time.
func (f *fitness) set(findings []topology.Finding) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := !slices.Equal(f.findings, findings)
	f.looked, f.findings = true, findings
	return changed
}

func (f *fitness) bad() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.findings) > 0
}

// last returns what was found; looked is false before the first look.
func (f *fitness) last() (findings []topology.Finding, looked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.findings), f.looked
}
