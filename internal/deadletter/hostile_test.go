package deadletter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestTimesThatNoCalendarHas: whatever a publisher wrote, what is shown can be written as JSON.
func TestTimesThatNoCalendarHas(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.park(
		r.parked("late", amqp.Table{"x-final-at": "9999-12-31T23:59:59-23:59"}),
		r.parked("death", amqp.Table{"x-final-at": nil, "x-final-reason": nil, "x-death": []any{amqp.Table{"queue": r.plan.Queue, "reason": "expired", "count": int64(1), "exchange": "x", "routing-keys": []any{}, "time": time.Date(9998, 12, 31, 0, 0, 0, 0, time.UTC)}}}),
	)
	views, _ := r.browse(Filter{}, Scan{})
	if _, err := json.Marshal(views); err != nil || len(views) != 2 || !views[0].ParkedAt.IsZero() {
		t.Errorf("%+v %v", views, err)
	}
	for _, at := range []time.Time{time.Unix(1<<55, 0), time.Unix(-1<<55, 0)} {
		m := Message{Properties: amqp.Delivery{Headers: amqp.Table{"x-death": []any{amqp.Table{"time": at}}}}}
		if _, err := json.Marshal(m.Full(10)); err != nil {
			t.Error(err)
		}
	}
}

func TestUnmet(t *testing.T) {
	t.Parallel()
	f := filter(t, "id", "a", "id", "b", "id", "c", "status", "503")
	again := f // what was met is known to all copies
	again.Match(&Message{Facts: Facts{MessageID: "a", Status: 503}})
	again.Match(&Message{Facts: Facts{MessageID: "b", Status: 200}})
	if got := strings.Join(f.Unmet(), ","); got != "b,c" {
		t.Errorf("unmet %s", got)
	}
}

func TestHeaderWithoutAValue(t *testing.T) {
	t.Parallel()
	m := Message{Properties: amqp.Delivery{Headers: amqp.Table{"n": "7", "e": ""}}}
	for condition, want := range map[string]bool{"n": true, "n=": false, "e=": true, "e": true, "n=7": true, "x": false} {
		if f := filter(t, "header", condition); f.Match(&m) != want {
			t.Errorf("%s: %v", condition, !want)
		}
	}
}
