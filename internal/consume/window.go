package consume

import (
	"cmp"
	"math/bits"
	"slices"
)

// window knows which delivery tags of one channel are finished, so that one multiple=true ack can take the longest
// finished prefix and never passes over an unfinished delivery.
//
// Tags are 1, 2, 3 … without a gap and every delivery is finished once, so one bit per tag above the head is enough: a
// head that does not move for minutes costs kilobytes.
//
//	tag    1 2 3 4 5 6 7 8
//	       f f f . f f . .      f finished
//	             ^ head: acks up to 3 may go as one; 5 and 6 wait for 4, or go singly
type window struct {
	head     uint64   // the smallest tag that is not finished
	base     uint64   // tag of bit 0 of words[0]; head is within words[0] or just past the end
	words    []uint64 // finished tags from base on
	pending  []ending // may be acked
	prefetch int
	tick     uint32 // of the settler's clock
}

func newWindow(prefetch int) *window { return &window{head: 1, base: 1, prefetch: prefetch} }

// finish marks tag as settled by other means than an ack, or as about to be acked.
func (w *window) finish(tag uint64) {
	if tag < w.base {
		return // finished before, and forgotten
	}
	i := int((tag - w.base) / 64) // #nosec G115 -- bounded by the deliveries of one session
	for i >= len(w.words) {
		w.words = append(w.words, 0)
	}
	w.words[i] |= 1 << ((tag - w.base) % 64)
}

// ack marks a delivery as finished and to be acked.
func (w *window) ack(e ending) {
	if e.tag < w.base {
		return
	}
	w.finish(e.tag)
	e.since = w.tick
	w.pending = append(w.pending, e)
}

// advance moves the head over everything finished and drops what is before it.
func (w *window) advance() {
	full := 0
	for full < len(w.words) && w.words[full] == ^uint64(0) {
		full++
	}
	if full > 0 {
		w.words = w.words[:copy(w.words, w.words[full:])]
		w.base += uint64(full) * 64
	}
	w.head = w.base
	if len(w.words) > 0 {
		w.head += uint64(bits.TrailingZeros64(^w.words[0])) // #nosec G115 -- 0 to 63
	}
}

// prefix takes the acks before the head out of pending, see take; last is the largest tag of them.
func (w *window) prefix() (last uint64, taken []ending) {
	w.advance()
	taken = w.take(func(e ending) bool { return e.tag < w.head })
	for _, e := range taken {
		last = max(last, e.tag)
	}
	return last, taken
}

// behind takes the acks that have waited behind the head for at least age ticks; all of them for 0.
func (w *window) behind(age uint32) []ending {
	return w.take(func(e ending) bool { return w.tick-e.since >= age })
}

// excess takes the oldest acks that wait behind the head, so many that half a window is left of them.
func (w *window) excess() []ending {
	slices.SortFunc(w.pending, func(a, b ending) int { return cmp.Compare(b.tag, a.tag) })
	taken := w.pending[w.prefetch/2:]
	w.pending = w.pending[:w.prefetch/2]
	return taken
}

// take takes what is due out of pending: it is moved to the end, and valid until the next call.
func (w *window) take(due func(ending) bool) []ending {
	p := w.pending
	i, j := 0, len(p)
	for i < j {
		if due(p[i]) {
			j--
			p[i], p[j] = p[j], p[i]
		} else {
			i++
		}
	}
	w.pending = p[:i]
	return p[j:]
}

// crowded reports whether so much waits behind a stuck head that it would starve the prefetch window.
func (w *window) crowded() bool { return len(w.pending) > w.prefetch/2 }
