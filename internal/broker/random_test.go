package broker

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

var fixedSizes = map[byte]int{
	'V': 0, 't': 1, 'b': 1, 'B': 1, 's': 2, 'u': 2, 'I': 4, 'i': 4, 'f': 4, 'D': 5, 'l': 8, 'L': 8, 'd': 8, 'T': 8,
}

// randomValue is a value of any type, containers more often than not.
func randomValue(r *rand.Rand, depth int) []byte {
	const kinds = "VtbBsuIifDlLdTSxAFAFAF"
	kind := kinds[r.IntN(len(kinds))]
	if n, ok := fixedSizes[kind]; ok {
		return append([]byte{kind}, randomBytes(r, n)...)
	}
	var content []byte
	switch {
	case kind == 'S' || kind == 'x':
		content = randomBytes(r, r.IntN(20))
	case depth < 60:
		for range r.IntN(4) {
			if kind == 'F' {
				content = append(content, short(strconv.Itoa(r.IntN(50)))...)
			}
			content = append(content, randomValue(r, depth+1)...)
		}
	}
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content))), content...)
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+7)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// randomTable is well-formed half of the time.
func randomTable(r *rand.Rand) []byte {
	var t []byte
	for range r.IntN(6) {
		t = append(append(t, short(strconv.Itoa(r.IntN(50)))...), randomValue(r, 0)...)
	}
	if len(t) > 0 && r.IntN(2) == 0 {
		for range 1 + r.IntN(3) {
			t[r.IntN(len(t))] = byte(r.Uint32())
		}
	}
	if len(t) > 0 && r.IntN(8) == 0 {
		t = t[:r.IntN(len(t))]
	}
	return t
}

// The broker's reader and the client library's are two programs: whatever the one lets through, the other must survive.
func TestWhateverTheBrokerTakesCanBeRead(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	q := queue(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	taken := 0
	raw := brokertest.DialRaw(t, url)
	for range 150 {
		h := randomTable(r)
		if len(h) > frameMax/2 {
			continue
		}
		if err := raw.Publish("", q, h, nil); err == nil {
			taken++
			continue
		}
		raw.Close()
		raw = brokertest.DialRaw(t, url)
	}
	if taken == 0 {
		t.Fatal("the broker took nothing: this proves nothing")
	}
	sub, deliveries := subscribe(t, dial(t, options(t)), q, 100)
	for range taken {
		must.Do(t, sub.Ack(next(t, deliveries).DeliveryTag, false))
	}
}
