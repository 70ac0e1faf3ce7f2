package retry

// StatusSet is a set of HTTP statuses between 100 and 599. The zero value is empty. It is comparable.
type StatusSet [8]uint64

// NewStatusSet returns the set of the given statuses; those outside 100–599 are ignored, configuration has refused
// them before.
func NewStatusSet(statuses ...int) StatusSet {
	var s StatusSet
	for _, n := range statuses {
		if i := n - 100; i >= 0 && i < 500 {
			s[i/64] |= 1 << (i % 64)
		}
	}
	return s
}

// Has reports whether status is in the set.
func (s StatusSet) Has(status int) bool {
	i := status - 100
	return i >= 0 && i < 500 && s[i/64]&(1<<(i%64)) != 0
}
