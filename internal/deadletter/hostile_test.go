package deadletter

import (
	"encoding/json"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestTimesThatNoCalendarHas: whatever a publisher wrote, what is shown can be written as JSON.
func TestTimesThatNoCalendarHas(t *testing.T) {
	t.Parallel()
	q := New(Options{}, Owner{Plan: must.Get(topology.Build(topology.Options{Service: "svc"}))(t)})[0]
	for _, headers := range []amqp.Table{
		{"x-final-at": "9999-12-31T23:59:59-23:59", "x-final-reason": "crash"},
		{"x-death": []any{amqp.Table{"queue": "q", "time": time.Unix(1<<55, 0)}}},
		{"x-death": []any{amqp.Table{"queue": "q", "time": time.Unix(-1<<55, 0)}}},
	} {
		m := q.parse(&broker.Delivery{Delivery: amqp.Delivery{Headers: headers}}, 1)
		if _, err := json.Marshal(m.Full(10)); err != nil || !m.ParkedAt.IsZero() {
			t.Errorf("%+v %v", m.Facts, err)
		}
	}
}
