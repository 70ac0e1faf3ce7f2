package broker

import (
	"math/rand/v2"
	"testing"

	"sidecar/internal/amqpwire"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

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
