package topology

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
)

// TestKeeping: what the broker says about a queue somebody else has declared.
func TestKeeping(t *testing.T) {
	url := brokertest.URL(t)
	s, err := broker.NewDialer(broker.Options{URLs: func() ([]string, error) { return []string{url}, nil }, Timeout: 10 * time.Second}).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		name string
		args amqp.Table
		want Kept
	}{
		{"classic", nil, Kept{Known: true}},
		{"as we declare it", parkArgs(true), Kept{true, true, Unlimited}},
		{"none", amqp.Table{argType: typeQuorum}, Kept{true, true, 0}},
		{"five", amqp.Table{argType: typeQuorum, argDeliveryLimit: int32(5)}, Kept{true, true, 5}},
		{"with a dead-letter exchange", amqp.Table{argType: typeQuorum, argDeliveryLimit: int64(7), argDLX: "elsewhere"}, Kept{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), c.args)
			n, err := Keeping(t.Context(), s, queue)
			if err != nil || n != c.want {
				t.Errorf("%+v, %v; want %+v", n, err, c.want)
			}
		})
	}
}
