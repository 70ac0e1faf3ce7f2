package amqpwire

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"

	"sidecar/internal/budget"
	"sidecar/internal/testkit/must"
)

// identities receives one delivery of each stream, with limit bytes of memory, in pieces of any size.
func identities(t *testing.T, limit int64, spool *Spool, streams ...[]byte) (all []uint64) {
	t.Helper()
	for _, stream := range streams {
		w, q := consuming(Options{Memory: budget.New(limit).Account(budget.Deliveries), Spool: spool, Hidden: func(int) {}}, stream, anySize)
		must.Get(io.ReadAll(w))(t)
		got, _ := q.Take(nil)
		if len(got) != 1 || got[0].Identity == 0 {
			t.Fatalf("%d deliveries", len(got))
		}
		all = append(all, got[0].Identity)
		got[0].Free()
	}
	return all
}

// tabled is a delivery with this header table and a message id.
func tabled(exchange, key string, entries ...[]byte) []byte {
	h := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, 0)
	h = append(binary.BigEndian.AppendUint16(h, flagHeaders|flagMessageID), long(string(slices.Concat(entries...)))...)
	return append(deliverFrame(1, "ours", 1, false, exchange, key), frame(2, 1, append(h, short("id")...))...)
}

// TestIdentityIsOfTheWholeBody: wherever the body is kept, and also where it is not.
func TestIdentityIsOfTheWholeBody(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("0123456789"), 300_000)
	other := append(bytes.Clone(body[:len(body)-1]), 'x')
	stream := [][]byte{wholeDelivery(1, body), wholeDelivery(2, other), wholeDelivery(3, body[1:])}
	inMemory := identities(t, 64<<20, nil, stream...)
	inFile := identities(t, 1<<20, NewSpool(t.TempDir(), 1<<30), stream...)
	missing := identities(t, 1<<20, nil, stream...)
	if !slices.Equal(inMemory, inFile) || !slices.Equal(inMemory, missing) {
		t.Errorf("in memory %x, in a file %x, missing %x", inMemory, inFile, missing)
	}
	if slices.Sort(inMemory); len(slices.Compact(inMemory)) != len(stream) {
		t.Error("bodies that differ are one message")
	}
}

// TestIdentityOfHeaders: messages that differ in headers or routing differ, and the counts of the broker are left out.
func TestIdentityOfHeaders(t *testing.T) {
	t.Parallel()
	text := func(name, value string) []byte { return field(name, 'S', long(value)...) }
	count := func(name string, n byte) []byte { return field(name, 'l', 0, 0, 0, 0, 0, 0, 0, n) }
	death := func(n byte) []byte {
		table := long(string(slices.Concat(count("count", n), text("queue", "wait"), text("reason", "expired"))))
		return field("x-death", 'A', long(string(append([]byte("F"), table...)))...)
	}
	deep, deeper := field("deep", 'A', nested(40, 'V')...), field("deep", 'A', nested(40, 't', 1)...)
	unlike := [][]byte{
		tabled("", "k"), tabled("k", ""), tabled("", "k", text("a", "b")), tabled("", "k", text("ab", "")),
		tabled("", "k", text("a", "b"), text("c", "d")), tabled("", "k", text("a", "d"), text("c", "b")),
		tabled("", "k", text("X-Delivery-Count", "1")), tabled("", "k", death(1)), tabled("", "k", death(2)),
		tabled("", "k", deep), tabled("", "k", deeper), // readers see neither
		tabled("", "k", []byte{200}), tabled("", "k", []byte{201}), tabled("", "k", []byte{1, 'a', 'S', 0, 0}),
		tabled("", "k", []byte{1, 'a', 'S', 0, 0, 0, 9}), tabled("", "k", []byte{1, 'a', '?'}),
	}
	all := identities(t, 1<<20, nil, unlike...)
	for i, id := range all {
		if at := slices.Index(all, id); at != i {
			t.Errorf("messages %d and %d are one", at, i)
		}
	}
	for _, counts := range [][]byte{count("x-delivery-count", 1), count("x-acquired-count", 2)} {
		again := identities(t, 1<<20, nil, tabled("", "k", counts), tabled("", "k", text("c", "d"), counts, text("a", "b")))
		if again[0] != all[0] || again[1] != all[4] {
			t.Errorf("%q makes another message of the same", counts)
		}
	}
	none := append(deliverFrame(1, "ours", 1, false, "", "k"), frame(2, 1, append(binary.BigEndian.AppendUint16(
		binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, 0), flagMessageID), short("id")...))...)
	if identities(t, 1<<20, nil, none)[0] != all[0] {
		t.Error("a message without headers is another one when the broker adds a count")
	}
}
