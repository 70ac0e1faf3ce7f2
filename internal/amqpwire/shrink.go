package amqpwire

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// entries splits a table up to its first entry that is not well-formed.
func entries(table []byte) (list []entry) {
	t := newTally(table)
	for at := 0; at < len(table); {
		e, ok := sanitizeEntry(table, at, 0, t)
		if !ok {
			break
		}
		list = append(list, e)
		at = e.end
	}
	return list
}

// replaceEntries rewrites a table with too many or with unreadable entries: the vital ones and the first others stay,
// the rest becomes the bytes of one opaque entry. The table keeps its length. It returns how many well-formed entries
// that entry holds.
func replaceEntries(table []byte) int {
	const marker = 1 + len(hiddenKey) + 1 + 4
	list := entries(table)
	room := len(table) - marker
	kept := make([]byte, 0, len(table))
	rest := make([]byte, 0, len(table))
	var taken, hidden int
	for _, wanted := range [...]bool{true, false} {
		for _, e := range list {
			switch {
			case e.vital != wanted:
			case taken < keptElements && len(kept)+e.size() <= room:
				kept = append(kept, table[e.start:e.end]...)
				taken++
			default:
				rest = append(rest, table[e.start:e.end]...)
				hidden++
			}
		}
	}
	if room < 0 {
		return 0 // a few bytes no broker lets through; the library will say so
	}
	if len(list) > 0 {
		rest = append(rest, table[list[len(list)-1].end:]...)
	} else {
		rest = append(rest, table...)
	}
	kept = append(append(kept, byte(len(hiddenKey))), hiddenKey...)
	value := len(table) - len(kept) - 5
	// #nosec G115 -- at most the length of a frame
	kept = binary.BigEndian.AppendUint32(append(kept, opaque), uint32(value))
	copy(table, kept)
	copy(table[len(kept):], rest[:value])
	return hidden
}

// shrink takes at least excess bytes out of a table and returns its new length. The largest entries go first; of a
// vital one the key stays, with no value, and only when there is nothing else left.
func shrink(table []byte, excess int) (kept, dropped int) {
	list := entries(table)
	weight := func(e entry) int {
		if e.vital {
			return e.size() - math.MaxInt32
		}
		return e.size()
	}
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(a, b entry) int { return cmp.Compare(weight(b), weight(a)) })
	cut := map[int]bool{}
	for _, e := range order {
		if excess <= 0 {
			break
		}
		cut[e.start] = true
		dropped++
		if excess -= e.size(); e.vital {
			excess += e.kind + 1 - e.start
		}
	}
	for _, e := range list {
		switch {
		case !cut[e.start]:
			kept += copy(table[kept:], table[e.start:e.end])
		case e.vital:
			n := copy(table[kept:], table[e.start:e.kind])
			table[kept+n] = 'V'
			kept += n + 1
		}
	}
	return kept, dropped
}
