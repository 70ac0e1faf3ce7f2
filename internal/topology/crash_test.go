package topology

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// TestACrashIsWrittenDown wherever the message goes next, and only then is a publish needed for it.
func TestACrashIsWrittenDown(t *testing.T) {
	t.Parallel()
	fanout := build(t, Options{Service: "wms-cincout"})
	nowhere := build(t, Options{Service: "wms-cincout"})
	nowhere.Waits = nil
	retry, requeue := verdict(message.Retry, message.ReasonReset), verdict(message.Requeue, message.ReasonCrash)
	park := verdict(message.Park, message.ReasonCrash)
	for _, c := range []struct {
		name    string
		p       *Plan
		v       message.Verdict
		written any // by an earlier crash
		crashes int
		final   Final
		want    any // in the publication; nil when there is none
	}{
		{"no crash, a retry", fanout, retry, nil, 0, FinalReject, nil},
		{"no crash, parked", fanout, park, nil, 0, FinalAck, nil},
		{"a new one, a retry", fanout, retry, nil, 1, FinalAck, int32(1)},
		{"another one, a retry", fanout, retry, int32(1), 2, FinalAck, int32(2)},
		{"an old one, a retry", fanout, retry, int32(2), 2, FinalReject, nil},
		{"a new one, a requeue", fanout, requeue, nil, 1, FinalAck, int32(1)},
		{"an old one, a requeue", fanout, requeue, int32(1), 1, FinalRequeue, nil},
		{"a new one, a requeue without a way", nowhere, requeue, nil, 1, FinalRequeue, nil},
		{"a new one, parked", fanout, park, int32(2), 3, FinalAck, int32(3)},
		{"forged", fanout, requeue, "many", 1, FinalAck, int32(1)},
		{"nothing counts", fanout, park, int32(7), 0, FinalAck, int32(7)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.p.Settlement(arrived(func(m *message.Message) {
				m.Crashes, m.RetryCount = c.crashes, 1
				if c.written != nil {
					m.Headers[message.HeaderCrashes] = c.written
				}
			}), c.v)
			if s.Final != c.final || s.Verdict.Action != c.v.Action {
				t.Errorf("%+v", s)
			}
			var h amqp.Table
			if s.Publish != nil {
				h = s.Publish.Msg.Headers
			}
			if h[message.HeaderCrashes] != c.want {
				t.Errorf("%v crashes, want %v", h[message.HeaderCrashes], c.want)
			}
			if c.v.Action == message.Requeue && h != nil && h[message.HeaderRetryCount] != int32(1) {
				t.Errorf("%v retries, want 1: a requeue is not one", h[message.HeaderRetryCount])
			}
		})
	}
}
