package publish

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
)

// value is a value of a header of any type, at most so deep.
func value(r *rand.Rand, depth int) any {
	n := r.Uint64()
	switch r.IntN(16) {
	case 0:
		return nil
	case 1:
		return n%2 == 0
	case 2:
		return int32(n)
	case 3:
		return int64(n)
	case 4:
		return int16(n)
	case 5:
		return uint8(n)
	case 6:
		return float64(int32(n))
	case 7:
		return float32(n) / 3
	case 8:
		return time.Unix(int64(n), 0)
	case 9:
		return amqp.Decimal{Scale: uint8(n), Value: int32(n)}
	case 10:
		return hostileText(r)
	case 11:
		return string(hostileText(r))
	case 12, 13:
		t := amqp.Table{}
		for range min(r.IntN(4), depth) {
			t[string(hostileText(r))] = value(r, depth-1)
		}
		return t
	case 14:
		list := []any{}
		for range min(r.IntN(4), depth) {
			list = append(list, value(r, depth-1))
		}
		return list
	}
	return float64(n) / 7
}

// hostileText is up to 60 bytes, from plain text over JSON to bytes.
func hostileText(r *rand.Rand) []byte {
	part := []string{"a", "é", "\"", "\\", "\n", "\r", "\t", "\x00", "\xff", "\u2028", "😀", "{", "}", "[", "]", ":", ",", "1", "null", `\ud800`, "base64:", "/w==", " "}
	var b []byte
	for range r.IntN(10) {
		b = append(b, part[r.IntN(len(part))]...)
	}
	return b
}

// read reads a copy of a line.
func read(t testing.TB, s *Server, line []byte) (outgoing, *failure) {
	t.Helper()
	line = bytes.Clone(line)
	r := &room{server: s}
	if failed := r.reserve(int64(cap(line))); failed != nil {
		t.Fatal(failed)
	}
	defer r.free()
	return s.readLine(line, telemetry.Carrier{}, r)
}

// TestLineRoundTrip: what AppendLine writes is published as it was, but for what is not the app's to set.
func TestLineRoundTrip(t *testing.T) {
	t.Parallel()
	s := offline()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	form := func(p amqp.Publishing) string {
		headers := must.Get(json.Marshal(amqpvalue.TypedTable(p.Headers)))(t)
		return string(headers) + string(must.Get(json.Marshal(amqpvalue.Properties(p)))(t)) + string(p.Body)
	}
	for range 300 {
		want := random(r)
		want.Headers = amqp.Table{"x-death": "forged", "CC": []any{"elsewhere"}, "x-final-\xff": 1}
		for range r.IntN(5) {
			want.Headers[string(hostileText(r))] = value(r, 5)
		}
		want.Body = hostileText(r)
		if r.IntN(2) == 0 {
			want.Body = []byte(`{"a":` + string(hostileText(r)) + `}`)
		}
		want.UserId, want.DeliveryMode = "stranger", uint8(r.IntN(3))
		line := amqpvalue.AppendLine(nil, "x", "k", &want)
		got, failed := read(t, s, line)
		if failed != nil || got.alias != "default" || got.exchange != "x" || got.key != "k" {
			t.Fatalf("seed %d: %+v in %s", seed, failed, line)
		}
		want.UserId, want.DeliveryMode = "", 0
		for name := range want.Headers {
			if message.Reserved(name) {
				delete(want.Headers, name)
			}
		}
		if form(got.msg) != form(want) {
			t.Fatalf("seed %d:\n%+v\nbecame\n%+v\nin %s", seed, want, got.msg, line)
		}
	}
}
