package declare

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// journey takes messages through a plan on a real broker the way the sidecar does: nothing but Settlement decides how
// they leave.
type journey struct {
	t    testing.TB
	ch   *amqp.Channel
	plan *topology.Plan
}

func newJourney(t testing.TB, url string, p *topology.Plan) *journey {
	t.Helper()
	fits(t, url, p, topology.ModeDeclare)
	return &journey{t, channel(t, url), p}
}

// next waits for a message in the service's queue.
func (j *journey) next() (amqp.Delivery, *message.Message) {
	j.t.Helper()
	var d amqp.Delivery
	brokertest.Eventually(j.t, soon, "a message in "+j.plan.Queue, func() bool {
		var ok bool
		var err error
		if d, ok, err = j.ch.Get(j.plan.Queue, false); err != nil {
			j.t.Fatal(err)
		}
		return ok
	})
	m := &message.Message{}
	m.FromDelivery(&d, j.plan.Queue, j.plan.MaxRetries)
	return d, m
}

// settle does what a settlement says.
func (j *journey) settle(d amqp.Delivery, s topology.Settlement) {
	j.t.Helper()
	if s.Publish != nil {
		brokertest.Publish(j.t, j.ch, s.Publish.Exchange, s.Publish.Key, s.Publish.Msg)
	}
	var err error
	switch s.Final {
	case topology.FinalAck:
		err = d.Ack(false)
	case topology.FinalRequeue:
		err = d.Nack(false, true)
	case topology.FinalReject:
		err = d.Nack(false, false)
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// failed is what the app's 503 leads to.
func failed(m *message.Message) message.Verdict {
	v := message.Verdict{Action: message.Retry, Reason: message.ReasonServerError, Cause: message.Outcome{Status: 503, At: time.Now()}}
	if m.LastAttempt() {
		v.Action, v.Reason = message.Park, message.ReasonMaxRetries
	}
	return v
}

// counts lets every attempt fail until the message is parked and returns the retry count of each attempt.
func (j *journey) counts() []int {
	j.t.Helper()
	var counts []int
	for {
		d, m := j.next()
		counts = append(counts, m.RetryCount)
		s := j.plan.Settlement(m, failed(m))
		j.settle(d, s)
		if s.Verdict.Action == message.Park {
			return counts
		}
		if len(counts) > 2*j.plan.MaxRetries+2 {
			j.t.Fatalf("never parked: %v", counts)
		}
	}
}

func (j *journey) parked() amqp.Delivery {
	j.t.Helper()
	return get(j.t, j.ch, j.plan.Park.Queue)
}

func upTo(from, to int) []int {
	var n []int
	for i := from; i <= to; i++ {
		n = append(n, i)
	}
	return n
}

// journeys are the ways through the fanout topology.
func journeys(t testing.TB) map[string]*topology.Plan {
	few := []time.Duration{10 * time.Millisecond, 20 * time.Millisecond}
	return map[string]*topology.Plan{
		"reject":         build(t, topology.Options{Service: "a-x", RetryDelay: 10 * time.Millisecond}),
		"reject, quorum": build(t, topology.Options{Service: "b-x", RetryDelay: 10 * time.Millisecond, QueueType: "quorum"}),
		"tiers":          build(t, topology.Options{Service: "c-x", RetryDelays: few}),
		"tiers, quorum":  build(t, topology.Options{Service: "d-x", RetryDelays: few, QueueType: "quorum"}),
		"without reject": build(t, topology.Options{Service: "e-x", RetryDelay: 10 * time.Millisecond}).WithoutReject(),
		"through a dlx":  build(t, topology.Options{Service: "f-x", RetryDelay: 10 * time.Millisecond, DLX: "f.dlx"}),
	}
}

// eachJourney runs do for each of them.
func eachJourney(t *testing.T, do func(t *testing.T, j *journey, p *topology.Plan)) {
	url := brokertest.URL(t)
	for name, p := range journeys(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t, newJourney(t, url, p), p)
		})
	}
}

// TestTheEleventhFailureParks counts every attempt on a real broker, whose counters differ by version, and checks
// what is parked.
func TestTheEleventhFailureParks(t *testing.T) {
	t.Parallel()
	eachJourney(t, func(t *testing.T, j *journey, p *topology.Plan) {
		brokertest.Publish(t, j.ch, p.Exchanges[0].Name, "orders.new", amqp.Publishing{
			Body: []byte("body"), MessageId: "id", ContentType: "a/b", Headers: amqp.Table{"x-a": "1"},
		})
		if got := j.counts(); !slices.Equal(got, upTo(0, 10)) {
			t.Errorf("retry counts %v", got)
		}
		d := j.parked()
		if string(d.Body) != "body" || d.MessageId != "id" || d.ContentType != "a/b" || d.DeliveryMode != amqp.Persistent {
			t.Errorf("the message changed: %+v", d)
		}
		for key, want := range map[string]any{
			"x-a": "1", "x-original-queue": p.Queue, "x-original-exchange": p.Exchanges[0].Name, "x-original-routing-key": "orders.new",
			"x-final-status-code": int32(503), "x-final-retry-count": int32(10), "x-final-reason": "max_retries",
		} {
			if !reflect.DeepEqual(d.Headers[key], want) {
				t.Errorf("%s is %#v, want %#v", key, d.Headers[key], want)
			}
		}
		if _, ok := d.Headers["x-death"].([]any); !ok {
			t.Errorf("x-death is %#v", d.Headers["x-death"])
		}
		for key := range d.Headers {
			if key == "x-final-error" || key == "x-final-detail" || strings.HasPrefix(key, "x-final-problem") {
				t.Errorf("%s without a cause", key)
			}
		}
		// Whichever tool moves a parked message back, its count continues.
		j.moveBack(d)
		if got := j.counts(); !slices.Equal(got, []int{10}) {
			t.Errorf("retry counts %v", got)
		}
		d = j.parked()
		if d.Headers["x-original-exchange"] != p.Exchanges[0].Name || d.Headers["x-original-routing-key"] != "orders.new" {
			t.Errorf("the origin is lost: %v", d.Headers)
		}
	})
}

// TestMovedBackEarlyGoesOnCounting: parked by status after three failures, moved back, it has seven retries left, not
// ten. A broker from 4.0 on would begin again at one.
func TestMovedBackEarlyGoesOnCounting(t *testing.T) {
	t.Parallel()
	eachJourney(t, func(t *testing.T, j *journey, p *topology.Plan) {
		brokertest.Publish(t, j.ch, p.Exchanges[0].Name, "", amqp.Publishing{})
		for range 3 {
			d, m := j.next()
			j.settle(d, p.Settlement(m, failed(m)))
		}
		d, m := j.next()
		j.settle(d, p.Settlement(m, message.Verdict{Action: message.Park, Reason: message.ReasonParkStatus}))
		j.moveBack(j.parked())
		if got := j.counts(); !slices.Equal(got, upTo(3, 10)) {
			t.Errorf("retry counts %v", got)
		}
		j.parked()
	})
}

// moveBack is a shovel: it ignores our headers.
func (j *journey) moveBack(d amqp.Delivery) {
	j.t.Helper()
	brokertest.Publish(j.t, j.ch, j.plan.Redrive.Exchange, j.plan.Redrive.Key, amqp.Publishing{
		Headers: d.Headers, Body: d.Body, MessageId: d.MessageId, ContentType: d.ContentType,
	})
}

// TestForgedDeath: on RabbitMQ 3.10 rejecting such a message takes the queue's process down.
func TestForgedDeath(t *testing.T) {
	t.Parallel()
	eachJourney(t, func(t *testing.T, j *journey, p *topology.Plan) {
		for i, forged := range []any{
			"zzz", int32(7), []any{}, []any{int32(1)}, []any{amqp.Table{}}, []any{amqp.Table{
				"count": "3", "reason": "rejected", "queue": p.Queue, "exchange": "", "routing-keys": []any{"k"},
			}},
		} {
			body := fmt.Sprint(i)
			brokertest.Publish(t, j.ch, p.Exchanges[0].Name, "", amqp.Publishing{Body: []byte(body), Headers: amqp.Table{"x-death": forged}})
			for want := range 3 {
				d, m := j.next()
				if string(d.Body) != body || m.RetryCount != want {
					t.Fatalf("%#v: message %s, count %d, want %d", forged, d.Body, m.RetryCount, want)
				}
				v := failed(m)
				if want == 2 {
					v.Action = message.Ack
				}
				j.settle(d, p.Settlement(m, v))
			}
		}
	})
}

// TestDetourIsNotCounted: a message that is asked to come later waits in the broker without losing an attempt.
func TestDetourIsNotCounted(t *testing.T) {
	t.Parallel()
	eachJourney(t, func(t *testing.T, j *journey, p *topology.Plan) {
		brokertest.Publish(t, j.ch, p.Exchanges[0].Name, "orders.new", amqp.Publishing{})
		var counts []int
		for i := range 8 {
			d, m := j.next()
			counts = append(counts, m.RetryCount)
			s := p.Settlement(m, failed(m))
			if i%2 == 1 {
				s = p.Settlement(m, message.Verdict{Action: message.Requeue, Reason: message.ReasonTooEarly, Delay: time.Second})
				s.Publish, s.Final = s.Detour, topology.FinalAck
			}
			j.settle(d, s)
		}
		if !slices.Equal(counts, []int{0, 1, 1, 2, 2, 3, 3, 4}) {
			t.Errorf("retry counts %v", counts)
		}
		d, m := j.next()
		if m.Exchange != p.Exchanges[0].Name || m.RoutingKey != "orders.new" {
			t.Errorf("the origin is lost: %+v", m)
		}
		j.settle(d, topology.Settlement{})
	})
}
