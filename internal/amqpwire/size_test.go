package amqpwire

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

func TestTableSizeIsTheLibrarys(t *testing.T) {
	t.Parallel()
	table := amqp.Table{
		"nil": nil, "bool": true, "byte": byte(1), "int8": int8(1), "int": 1, "int16": int16(1), "int32": int32(1),
		"int64": int64(1), "uint16": uint16(1), "uint32": uint32(1), "float32": float32(1), "float64": 1.0,
		"string": "text", "bytes": []byte("bytes"), "decimal": amqp.Decimal{Value: 1}, "time": time.Unix(1, 0),
		"array": []any{nil, "a", []any{}}, "table": amqp.Table{"a": amqp.Table{}},
	}
	n, err := amqpvalue.TableSize(table)
	written := publishedHeader(t, table)
	start, end, ok := headerTable(written)
	if err != nil || !ok || n != end-start+4 {
		t.Errorf("%d, %v; the library writes %d", n, err, end-start+4)
	}
}
