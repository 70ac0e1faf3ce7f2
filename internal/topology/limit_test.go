package topology

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

func limited(n int) Kept { return Kept{Known: true, Quorum: true, Named: true, Limit: n} }

// TestKeeping: what the broker says about a queue somebody else has declared.
func TestKeeping(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	s := session(t, url)
	type queue struct {
		name string
		args amqp.Table
		want Kept
	}
	queues := []queue{
		{"classic", nil, Kept{Known: true}},
		{"classic with more", amqp.Table{"x-max-length": int64(10), argDLX: "elsewhere", "x-queue-mode": "lazy"}, Kept{Known: true}},
		{"as we declare it", parkArgs(true), limited(Unlimited)},
		{"none", amqp.Table{argType: typeQuorum}, Kept{Known: true, Quorum: true}},
		{"none, and more", amqp.Table{argType: typeQuorum, "x-max-length": int64(10)}, Kept{Known: true, Quorum: true}},
		{"five", amqp.Table{argType: typeQuorum, argDeliveryLimit: int32(5)}, limited(5)},
		{"nothing at all", amqp.Table{argType: typeQuorum, argDeliveryLimit: int32(0)}, limited(0)},
		{"with a dead-letter exchange", amqp.Table{argType: typeQuorum, argDeliveryLimit: int64(7), argDLX: "elsewhere"}, limited(7)},
		{"with a size", amqp.Table{argType: typeQuorum, argDeliveryLimit: int64(3), "x-quorum-initial-group-size": int64(1), "x-max-length": int64(10)}, limited(3)},
		{"all consumers, expressly", amqp.Table{argType: typeQuorum, argNever: false, argDeliveryLimit: int64(3)}, limited(3)},
		{"one consumer", amqp.Table{argNever: true}, Kept{Known: true, Single: true}},
		{"quorum, one consumer", amqp.Table{argType: typeQuorum, argNever: true, argDeliveryLimit: int64(3)}, Kept{Known: true, Single: true}},
		{"auto-delete", nil, Kept{Known: true, Vanishes: true}},
	}
	if !strings.HasPrefix(brokertest.Version(t), "3.") {
		queues = append(queues, queue{"no end", amqp.Table{argType: typeQuorum, argDeliveryLimit: int64(-1)}, limited(-1)})
	}
	ch := channel(t, url)
	for _, c := range queues {
		t.Run(c.name, func(t *testing.T) {
			must.Get(ch.QueueDeclare(c.name, true, c.want.Vanishes, false, false, c.args))(t)
			n, err := Keeping(t.Context(), s, c.name)
			if err != nil || n != c.want {
				t.Errorf("%+v, %v; want %+v", n, err, c.want)
			}
		})
	}
}
