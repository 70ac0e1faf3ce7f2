package apptest

import "sync"

// Tally counts by name what goroutines have seen.
type Tally struct {
	mu sync.Mutex
	n  map[string]int
}

// Add counts one more and returns how many those are.
func (y *Tally) Add(name string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.n == nil {
		y.n = map[string]int{}
	}
	y.n[name]++
	return y.n[name]
}

// Of returns how many were counted under a name.
func (y *Tally) Of(name string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.n[name]
}

// Total returns how many were counted under all names.
func (y *Tally) Total() (sum int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, n := range y.n {
		sum += n
	}
	return sum
}
