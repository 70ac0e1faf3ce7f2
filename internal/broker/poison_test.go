package broker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// Each of these, published by any client, makes an unprotected client lose its connection with every delivery, for ever:
// the message goes back to the head of the queue, and nothing behind it is ever seen.
func TestHostileHeadersDoNotBlockTheQueue(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	for name, headers := range map[string][]byte{
		"depth 33":           brokertest.Field("h", 'A', brokertest.Nested(33)...),
		"depth 100":          brokertest.Field("h", 'A', brokertest.Nested(100)...),
		"depth 10000":        brokertest.Field("h", 'A', brokertest.Nested(10000)...),
		"20000 entries":      brokertest.Many(20000, func(i int) []byte { return brokertest.Field(fmt.Sprint(i), 'V') }),
		"60000 empty names":  brokertest.Many(60000, func(int) []byte { return brokertest.Field("", 'V') }),
		"20000 elements":     brokertest.Field("h", 'A', brokertest.Container(bytes.Repeat([]byte{'V'}, 20000))...),
		"unsigned long":      brokertest.Field("h", 'L', 0, 0, 0, 0, 0, 0, 0, 1),
		"unsigned long deep": brokertest.Field("h", 'A', brokertest.Nested(5, 'L', 0, 0, 0, 0, 0, 0, 0, 1)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := queue(t)
			raw := brokertest.DialRaw(t, url)
			for _, h := range [][]byte{headers, brokertest.Field("good", 'I', 0, 0, 0, 1)} {
				if err := raw.Publish("", q, h, []byte("body")); err != nil {
					t.Fatalf("the broker does not take it: %v", err)
				}
			}
			sub, deliveries := subscribe(t, dial(t, options(t)), q, 10)
			bad, good := next(t, deliveries), next(t, deliveries)
			if string(bad.Body) != "body" || len(bad.Headers) == 0 || good.Headers["good"] != int32(1) {
				t.Errorf("bad %q with %d headers, good %v", bad.Body, len(bad.Headers), good.Headers)
			}
			must.Do(t, sub.Ack(good.DeliveryTag, true))
			brokertest.WaitReady(t, url, q, 0)
		})
	}
}

// Dead-lettering adds x-death to a header table that just fitted one frame. The broker sends the result although it is
// larger than the frame it agreed to.
func TestHeadersThatOutgrewTheFrameDoNotBlockTheQueue(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	q := queue(t)
	wait := brokertest.Queue(t, url, brokertest.Name(t, "wait"), amqp.Table{
		"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": q,
	})
	raw := brokertest.DialRaw(t, url)
	large := brokertest.Field("large", 'S', brokertest.Long(strings.Repeat("x", amqpwire.FrameMax-100))...)
	if err := raw.Publish("", wait, append(brokertest.Field("small", 'V'), large...), nil); err != nil {
		t.Fatalf("the broker does not take it: %v", err)
	}
	brokertest.Eventually(t, time.Minute, "dead-lettered", func() bool { return brokertest.Ready(t, url, wait) == 0 })
	brokertest.Send(t, url, q, "good")
	sub, deliveries := subscribe(t, dial(t, options(t)), q, 10)
	bad, good := next(t, deliveries), next(t, deliveries)
	if string(good.Body) != "good" {
		t.Errorf("got %q", good.Body)
	}
	if _, there := bad.Headers["small"]; !there || bad.Headers["x-death"] == nil || bad.Headers["large"] != nil {
		t.Errorf("small, x-death or large is wrong in %d headers", len(bad.Headers))
	}
	must.Do(t, sub.Ack(good.DeliveryTag, true))
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
	for range 60 {
		h := brokertest.RandomTable(r)
		if len(h) > amqpwire.FrameMax/2 {
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
