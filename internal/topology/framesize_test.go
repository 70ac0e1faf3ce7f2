package topology

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// filled makes properties whose frame has exactly size bytes.
func filled(size int) amqp.Publishing {
	pub := amqp.Publishing{
		DeliveryMode: amqp.Persistent, ContentType: "a/b", MessageId: "id", Priority: 1, Type: "t",
		Headers: amqp.Table{
			"i8": int8(1), "u8": uint8(1), "i16": int16(1), "u16": uint16(1), "i32": int32(1), "u32": uint32(1), "i64": int64(1),
			"f": float32(1), "d": 1.5, "t": true, "v": nil, "b": []byte{1, 2}, "dec": amqp.Decimal{Scale: 1, Value: 2},
			"a": []any{"x", int32(1), amqp.Table{"k": "v"}}, "fill": "",
		},
	}
	pub.Headers["fill"] = strings.Repeat("x", size-HeaderFrameSize(&pub))
	return pub
}

// TestFrameSizeIsExact: our arithmetic is the broker's. It forgives the eight bytes around a frame and nothing more.
func TestFrameSizeIsExact(t *testing.T) {
	t.Parallel()
	const forgiven = 8
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, "q", nil)
	brokertest.Publish(t, brokertest.Channel(t, url), "", queue, filled(FrameMax))
	d := brokertest.Get(t, url, queue, time.Minute)
	if len(d.Headers) != 15 {
		t.Errorf("%d headers returned", len(d.Headers))
	}
	brokertest.Publish(t, brokertest.Channel(t, url), "", queue, filled(FrameMax+forgiven))

	conn := brokertest.Conn(t, url)
	ch := must.Get(conn.Channel())(t)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	must.Do(t, ch.Publish("", queue, true, false, filled(FrameMax+forgiven+1)))
	select {
	case err := <-closed:
		if err == nil || err.Code != amqp.FrameError {
			t.Errorf("one byte more: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("one byte more was taken")
	}
}
