package test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// everyType is a header table with every type of AMQP, at its limits. NaN and the infinities are not in it: RabbitMQ
// ends the connection of a client that sends them.
func everyType() amqp.Table {
	scalars := amqp.Table{
		"void": nil, "true": true, "false": false,
		"int8": int8(math.MinInt8), "uint8": uint8(math.MaxUint8), "int16": int16(math.MinInt16), "uint16": uint16(math.MaxUint16),
		"int32": int32(math.MinInt32), "uint32": uint32(math.MaxUint32), "int64": int64(math.MinInt64), "max64": int64(math.MaxInt64), "zero64": int64(0),
		"float32": float32(0.1), "float64": 0.1, "huge": math.MaxFloat64, "minus zero": math.Copysign(0, -1), "tiny": math.SmallestNonzeroFloat64,
		"decimal": amqp.Decimal{Scale: 3, Value: -12345}, "string": "grüße\n\x00<&>\u2028", "empty": "", "no UTF-8": "\xff\xfe", "binary": []byte{0, 1, 254, 255}, "no bytes": []byte{},
		"timestamp": time.Unix(1_700_000_000, 0), "epoch": time.Unix(0, 0), "future": time.Unix(1<<40, 0),
	}
	table := maps.Clone(scalars)
	table["table"], table["no table"] = maps.Clone(scalars), amqp.Table{}
	list := []any{}
	for _, k := range slices.Sorted(maps.Keys(scalars)) {
		list = append(list, scalars[k])
	}
	table["array"], table["no array"] = append(list, []any{int32(1), amqp.Table{"deep": []any{"er"}}}), []any{}
	table["base64:x"], table["grüße"], table["\xff"] = "a", "b", "c"
	return table
}

// lossless are messages that are easy to get wrong.
func lossless() []amqp.Publishing {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	list := []amqp.Publishing{
		{Headers: everyType(), MessageId: "every-type", Body: all},
		{},
		{MessageId: "large", Body: []byte(strings.Repeat("0123456789abcdef", 20_000))},
		{
			MessageId: "properties", ContentType: "text/plain; charset=\"x\"", ContentEncoding: "gzip", Priority: 7, CorrelationId: "\xfe\xff", ReplyTo: "r", Expiration: "86400000",
			Timestamp: time.Unix(1_700_000_000, 0), Type: "ty\u202epe", AppId: "app", Body: []byte("no json \u2028\xff"),
		},
		{MessageId: "json", ContentType: "application/json", Body: []byte("{\"a\" : 1.0,\r\n \"b\":\"\\u0000<>\"}")},
		{MessageId: "same"}, {MessageId: "same"}, parked("parked", 503),
	}
	for i := range list {
		list[i].DeliveryMode = amqp.Persistent
	}
	return list
}

// identity is all of a message that a consumer can see, types included, but for what a quorum queue counts on delivery.
func identity(d *amqp.Delivery) string {
	h := maps.Clone(d.Headers)
	delete(h, "x-delivery-count")
	delete(h, "x-acquired-count")
	return fmt.Sprintf("%q %q %d %d %q %q %q %q %v %q %q %q %q %q\n%s\n%x", d.ContentType, d.ContentEncoding, d.DeliveryMode, d.Priority, d.CorrelationId, d.ReplyTo,
		d.Expiration, d.MessageId, d.Timestamp.Unix(), d.Type, d.UserId, d.AppId, d.Exchange, d.RoutingKey, typed(h), d.Body)
}

func typed(v any) string {
	switch v := v.(type) {
	case amqp.Table:
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(&b, "%q=%s;", k, typed(v[k]))
		}
		return "table{" + b.String() + "}"
	case []any:
		var b strings.Builder
		for _, e := range v {
			b.WriteString(typed(e) + ",")
		}
		return "array[" + b.String() + "]"
	case float64:
		return fmt.Sprintf("float64(%x)", math.Float64bits(v))
	case time.Time:
		return fmt.Sprintf("time(%d)", v.Unix())
	}
	return fmt.Sprintf("%T(%q)", v, fmt.Sprint(v))
}

// contents reads the queue with a plain client and gives everything back.
func (b *broker) contents(queue string, n int) []string {
	b.t.Helper()
	ch := b.channel()
	defer func() { _ = ch.Close() }()
	list := make([]string, 0, n)
	for range n {
		d, ok, err := ch.Get(queue, false)
		if !ok || err != nil {
			b.t.Fatalf("message %d of %d in %s: %v, %v", len(list)+1, n, queue, ok, err)
		}
		list = append(list, identity(&d))
	}
	if err := ch.Nack(0, true, true); err != nil {
		b.t.Fatal(err)
	}
	return list
}

// TestDLQExportPurgeImport: what returns is byte for byte and type for type what was there, in its order.
func TestDLQExportPurgeImport(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "1", "QUEUE_TYPE", queueType)
			sc.app.otherwise(func(*delivery) answer {
				return answer{500, map[string]string{"Content-Type": "application/problem+json"}, `{"type":"urn:x","title":"grüße"}`, nil}
			})
			s := sc.run()
			sc.send("really-parked") // with a history of the broker's own
			eventually(t, "a parked message", func() bool { return sc.ready(sc.dlq()) == 1 })
			s.stop()
			sc.park(lossless()...)
			n := 1 + len(lossless())
			before := sc.contents(sc.dlq(), n)

			file := filepath.Join(t.TempDir(), "parked.jsonl")
			sc.cli(0, "export", file)
			if got := sc.contents(sc.dlq(), n); !slices.Equal(got, before) {
				t.Error("the export changed something")
			}
			if d := sc.acted("discard", "--all", "--yes"); d.Done != n || sc.ready(sc.dlq()) != 0 {
				t.Fatalf("%+v, %d left", d, sc.ready(sc.dlq()))
			}
			if d := sc.acted("import", file); d.Done != n {
				t.Fatalf("%+v", d)
			}
			after := sc.contents(sc.dlq(), n)
			for i := range before {
				if after[i] != before[i] {
					t.Errorf("message %d was\n%.3000s\nand is\n%.3000s", i+1, before[i], after[i])
				}
			}
			again := sc.cli(0, "export", "-").stdout
			first, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(first), "\n") {
				if got := strings.Split(again, "\n")[i]; got != line {
					t.Errorf("line %d of the export was\n%.3000s\nand is\n%.3000s", i+1, line, got)
				}
			}
		})
	}
}
