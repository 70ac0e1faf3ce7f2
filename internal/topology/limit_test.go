package topology

import (
	amqp "github.com/rabbitmq/amqp091-go"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"testing"
	"time"
)

// TestDeliveryLimit: what the broker says about a queue somebody else has declared.
func TestDeliveryLimit(t *testing.T) {
	url := brokertest.URL(t)
	s, err := broker.NewDialer(broker.Options{URLs: func() ([]string, error) { return []string{url}, nil }, Timeout: 10 * time.Second}).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		name string
		args amqp.Table
		want int
	}{
		{"classic", nil, assumedLimit},
		{"as we declare it", parkArgs(true), Unlimited},
		{"none", amqp.Table{argType: typeQuorum}, assumedLimit},
		{"five", amqp.Table{argType: typeQuorum, argDeliveryLimit: int32(5)}, 5},
		{"with a dead-letter exchange", amqp.Table{argType: typeQuorum, argDeliveryLimit: int64(7), argDLX: "elsewhere"}, assumedLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), c.args)
			n, err := DeliveryLimit(t.Context(), s, queue)
			if err != nil || n != c.want {
				t.Errorf("%d, %v; want %d", n, err, c.want)
			}
		})
	}
}
