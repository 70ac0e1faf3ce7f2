package topology

import (
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

// FuzzSettlement settles a message with any headers after an attempt that ended in any way: nothing may be lost without
// a publish, what is published must be something that the client library can write and one frame can carry, and
// nothing of the message may act on the broker. repeat makes one of the headers large.
func FuzzSettlement(f *testing.F) {
	f.Add([]byte{16, 3, 1, 13, 2, 'a', 'b'}, "x-a", "detail", uint8(0), uint8(0), uint32(0))
	for _, action := range []message.Action{message.Retry, message.Park} { // a name that cannot have come over the wire
		f.Add([]byte{}, strings.Repeat("k", 256), "detail", uint8(action), uint8(3), uint32(0))
	}
	plans := []*Plan{
		build(f, Options{Service: "wms-cincout"}),
		build(f, Options{Service: "wms-cincout", RetryDelays: []time.Duration{time.Second, time.Minute}}),
		build(f, Options{Service: "wms-cincout", QueueType: "quorum"}),
		build(f, Options{Service: "wms-cincout"}).WithoutReject(),
	}
	f.Fuzz(func(t *testing.T, tree []byte, name, text string, action, flags uint8, repeat uint32) {
		p := plans[int(flags)%len(plans)]
		m := fuzzMessage(tree, name, text, flags, repeat)
		v := message.Verdict{
			Action: message.Action(int(action) % message.Actions), Reason: message.ReasonMaxRetries,
			Cause: message.Outcome{Detail: text, Problem: &message.Problem{Type: text, Title: name, Detail: text}, At: time.Unix(1, 0)},
		}
		if flags&0x80 != 0 {
			v.Cause.Failure = message.FailureReset
		} else {
			v.Cause.Status = int(action)
		}
		s := p.Settlement(m, v)
		wantTrace(t, p, v, &s)
		for _, pub := range []*message.Publication{s.Publish, s.Detour} {
			if pub != nil {
				wantHarmless(t, p, &pub.Msg)
			}
		}
		if s.Publish != nil && s.Publish.Kind == message.KindPark {
			wantParked(t, m, &s.Publish.Msg, &v.Cause)
		}
	})
}

// wantTrace: nothing leaves the queue without a trace unless the verdict says so, or the plan keeps nothing; and nothing
// leaves it twice.
func wantTrace(t *testing.T, p *Plan, v message.Verdict, s *Settlement) {
	t.Helper()
	if s.Final == FinalReject && s.Publish != nil || s.Verdict.Action == message.Park && s.Publish == nil {
		t.Fatalf("settlement %+v", s)
	}
	told := v.Action == message.Ack || v.Action == message.Discard || p.Park == (Route{}) && s.Verdict.Action == message.Discard
	if s.Final == FinalAck && s.Publish == nil && !told {
		t.Fatalf("acked without an answer that says so or a copy: %+v", s)
	}
}

func fuzzMessage(tree []byte, name, text string, flags uint8, repeat uint32) *message.Message {
	v := brokertest.Value(&tree)
	if _, err := amqpvalue.TableSize(amqp.Table{"": v}); err != nil {
		v = nil // no broker sends a value of this type
	}
	headers := amqp.Table{"x-a": "1"}
	if t, ok := v.(amqp.Table); ok {
		maps.Copy(headers, t)
	}
	headers[name] = v
	headers["long"] = strings.Repeat("l", int(repeat%(256<<10)))
	if flags&0x40 != 0 {
		headers["CC"], headers["BCC"], headers["x-death"] = v, v, v
	}
	if len(name) > 255 {
		name = name[:255]
	}
	var m message.Message
	m.FromDelivery(&amqp.Delivery{
		Headers: headers, Body: []byte(text), UserId: name, Expiration: "1000", MessageId: name, ContentType: name, DeliveryMode: 1,
		Exchange: "wms.main-exchange", RoutingKey: name,
	}, "wms.queue.wms-cincout", int(flags%12))
	return &m
}

// wantHarmless: it can be written, it fits, it is kept by the broker, and it says nothing to the broker but where to
// go.
func wantHarmless(t *testing.T, p *Plan, pub *amqp.Publishing) {
	t.Helper()
	if err := pub.Headers.Validate(); err != nil {
		t.Fatalf("the library would refuse it: %v", err)
	}
	if _, err := amqpvalue.TableSize(pub.Headers); err != nil {
		t.Fatalf("it cannot be written: %v", err)
	}
	if size := HeaderFrameSize(pub); size > FrameMax-parkReserve {
		t.Fatalf("a frame of %d bytes", size)
	}
	if pub.UserId != "" || pub.Expiration != "" || pub.DeliveryMode != amqp.Persistent {
		t.Fatalf("user %q, expiration %q, mode %d", pub.UserId, pub.Expiration, pub.DeliveryMode)
	}
	for key := range pub.Headers {
		if senderSelected(key) || len(key) > amqpvalue.ShortMax {
			t.Fatalf("header %q", key)
		}
	}
}

func wantParked(t *testing.T, m *message.Message, pub *amqp.Publishing, o *message.Outcome) {
	t.Helper()
	h := pub.Headers
	_, failed := h[HeaderFinalError].(string)
	_, answered := h[HeaderFinalStatusCode].(int32)
	if failed == answered || failed != (o.Failure != message.FailureNone) {
		t.Fatalf("status %v, error %v", h[HeaderFinalStatusCode], h[HeaderFinalError])
	}
	if h[message.HeaderOriginalQueue] != m.Queue || h[message.HeaderFinalRetryCount] != int32(m.RetryCount) || string(pub.Body) != string(m.Body) {
		t.Fatalf("%v", h)
	}
	for _, key := range cuttable {
		s, _ := h[key].(string)
		if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			t.Fatalf("%s: %q", key, s)
		}
	}
}
