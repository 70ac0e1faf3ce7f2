package declare

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/topology"
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
	pub.Headers["fill"] = strings.Repeat("x", size-topology.HeaderFrameSize(&pub))
	return pub
}

// TestHeadersNearFrameMax: rejected, such a message would return in a frame that is too large to read. It is parked, and can
// be read there.
func TestHeadersNearFrameMax(t *testing.T) {
	t.Parallel()
	const deliveryCount = 64 // more than what a quorum queue adds on delivering
	eachJourney(t, func(t *testing.T, j *journey, p *topology.Plan) {
		for _, size := range []int{topology.FrameMax - deliveryCount, topology.FrameMax - 1000, topology.FrameMax - topology.RetryReserve + 1} {
			pub := filled(size)
			brokertest.Publish(t, j.ch, p.Exchanges[0].Name, "", pub)
			d, m := j.next()
			s := p.Settlement(m, failed(m))
			j.settle(d, s)
			if s.Verdict.Action != message.Park || s.Verdict.Reason != message.ReasonHeadersTooLarge {
				t.Fatalf("%d bytes: %+v", size, s.Verdict)
			}
			got := j.parked()
			if got.Headers["x-final-reason"] != "headers_too_large" || got.Headers["dec"] != pub.Headers["dec"] {
				t.Errorf("%d bytes: %v", size, got.Headers["x-final-reason"])
			}
			if dropped := got.Headers["x-final-headers-dropped"]; (dropped != nil) != (got.Headers["fill"] == nil) {
				t.Errorf("%d bytes: dropped %v", size, dropped)
			}
		}
	})
}

// TestHeadersJustBelowTheReserve: the largest table that is rejected returns whole, ten times.
func TestHeadersJustBelowTheReserve(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	long := strings.Repeat("n", 100)
	p := build(t, topology.Options{Service: "a-" + long, RetryDelay: 1e6})
	j := newJourney(t, url, p)
	brokertest.Publish(t, j.ch, p.Exchanges[0].Name, strings.Repeat("k", 255), filled(topology.FrameMax-topology.RetryReserve-1000))
	rejected := 0
	for {
		d, m := j.next()
		s := p.Settlement(m, failed(m))
		j.settle(d, s)
		if s.Final != topology.FinalReject {
			break
		}
		rejected++
	}
	if rejected == 0 {
		t.Error("not rejected once")
	}
	if j.parked().Headers["fill"] == nil {
		t.Error("the message's header was dropped")
	}
}
