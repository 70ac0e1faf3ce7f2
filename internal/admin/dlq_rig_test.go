package admin

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/admin/dlq"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// parking is a server over a topology of its own in a real broker. There is no consumer: what is redriven stays in the
// service's queue.
type parking struct {
	*running
	url  string
	ch   *amqp.Channel
	plan *topology.Plan
}

// startParking declares the topology that change makes of a fanout one.
func startParking(t *testing.T, change func(*topology.Options), edit func(*Options)) *parking {
	t.Helper()
	o := topology.Options{Preset: topology.PresetFanout, Service: "wms-a", RetryDelay: time.Hour}
	if change != nil {
		change(&o)
	}
	plan := must.Get(topology.Build(o))(t)
	p := declared(t, plan)
	p.running = start(t, func(o *Options) {
		o.DeadLetters, o.Topologies = queueOf(t, o.Logger, plan, p.url), []Topology{topologyOf("", plan.Queue)}
		if edit != nil {
			edit(o)
		}
	})
	return p
}

// declared are the objects of topologies in the broker, without a server yet.
func declared(t *testing.T, plans ...*topology.Plan) *parking {
	t.Helper()
	p := &parking{url: brokertest.URL(t), ch: brokertest.Channel(t, brokertest.URL(t)), plan: plans[0]}
	s := must.Get(broker.NewDialer(brokerOf(p.url)).Dial(t.Context()))(t)
	defer s.Close()
	for _, plan := range plans {
		if report := must.Get(declare.Ensure(t.Context(), s, plan, topology.ModeDeclare))(t); len(report.Findings) > 0 {
			t.Fatal(report.Findings)
		}
	}
	return p
}

// topologyOf is what /topology shows of a queue without anything around it.
func topologyOf(subscription, queue string) Topology {
	return Topology{
		Subscription: subscription, Queue: queue,
		Exchanges: []topology.Exchange{}, Queues: []topology.Queue{}, Bindings: []topology.Binding{}, Waits: []Wait{},
	}
}

func brokerOf(url string) broker.Options {
	return broker.Options{URLs: func() ([]string, error) { return []string{url}, nil }, Timeout: 30 * time.Second, Name: "test admin"}
}

func queueOf(t testing.TB, log *slog.Logger, plan *topology.Plan, url string) *dlq.API {
	t.Helper()
	queues := deadletter.New(deadletter.Options{Broker: brokerOf(url), By: "api@test"}, deadletter.Owner{Plan: plan})
	api := dlq.New(dlq.Options{Queues: queues, Service: plan.Service, Logger: log})
	api.BeginTime = 8 * time.Second // less than the listener gives an answer
	return api
}

// apiOf serves q; nil stands for a topology without dead letters.
func apiOf(q *deadletter.Queue, log *slog.Logger) *dlq.API {
	o := dlq.Options{Service: "wms-a", Logger: log}
	if q != nil {
		o.Queues = deadletter.Queues{q}
	}
	return dlq.New(o)
}

// away is a dead-letter queue behind a broker that is not there.
func away(t testing.TB, log *slog.Logger) *dlq.API {
	t.Helper()
	plan := must.Get(topology.Build(topology.Options{Preset: topology.PresetFanout, Service: "wms-a"}))(t)
	return queueOf(t, log, plan, "amqp://guest:guest@127.0.0.1:1/")
}

func (p *parking) dlq() string { return p.plan.Park.Queue }

// park puts a message into the dead-letter queue as the sidecar would.
func (p *parking) park(id string, status int, body string) {
	p.t.Helper()
	brokertest.Publish(p.t, p.ch, "", p.dlq(), p.message(id, status, body))
}

// parkThree parks "a" and "c" after a 503 and "b" after a 404.
func (p *parking) parkThree() {
	p.t.Helper()
	p.park("a", 503, `{"amount":1}`)
	p.park("b", 404, "no JSON")
	p.park("c", 503, "\xff\x00")
	brokertest.WaitReady(p.t, p.url, p.dlq(), 3)
}

// parkMany parks n messages, "m1" …, whose last answer was a 503.
func (p *parking) parkMany(n int) {
	p.t.Helper()
	for i := range n - 1 {
		m := p.message(fmt.Sprintf("m%d", i+1), 503, "{}")
		m.DeliveryMode = amqp.Persistent
		must.Do(p.t, p.ch.PublishWithContext(p.t.Context(), "", p.dlq(), true, false, m))
	}
	p.park(fmt.Sprintf("m%d", n), 503, "{}")
	brokertest.WaitReady(p.t, p.url, p.dlq(), n)
}

func (p *parking) message(id string, status int, body string) amqp.Publishing {
	return amqp.Publishing{
		MessageId: id, CorrelationId: "trace-" + id, ContentType: "application/json", Body: []byte(body),
		Headers: amqp.Table{
			"x-original-queue": p.plan.Queue, "x-original-exchange": "orders", "x-original-routing-key": "order.created",
			"x-final-reason": "max_retries", "x-final-status-code": int32(status), "x-final-retry-count": int32(10), // #nosec G115 -- three digits
			"x-final-at": "2026-11-20T10:00:00.000Z", "x-numbers": []any{int64(1) << 60, amqp.Table{"deep": 1.5}}, "x-bytes": []byte{0xff, 0},
		},
	}
}

// get asks and decodes; the answer must be a 200.
func (p *parking) get(path string, into any) {
	p.t.Helper()
	p.decode("GET "+path, p.do(http.MethodGet, p.control, path, nil), http.StatusOK, into)
}

func (r *running) decode(what string, got reply, status int, into any) {
	r.t.Helper()
	if got.StatusCode != status {
		r.t.Fatalf("%s: %d %s", what, got.StatusCode, got.body)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal([]byte(got.body), into); err != nil {
		r.t.Fatalf("%s: %v: %s", what, err, got.body)
	}
}

// post sends a JSON body.
func (r *running) post(path, body string) reply {
	r.t.Helper()
	return r.do(http.MethodPost, r.control, path, jsonBody(body))
}

func jsonBody(body string) func(*http.Request) {
	return func(q *http.Request) {
		setBody(q, body)
		q.Header.Set("Content-Type", "application/json")
	}
}

// begin starts an operation and returns it.
func (r *running) begin(path, body string) dlq.Operation {
	r.t.Helper()
	got := r.post(path, body)
	var op dlq.Operation
	r.decode("POST "+path+" "+body, got, http.StatusAccepted, &op)
	if got.Header.Get("Location") != "/dlq/operations/"+op.ID {
		r.t.Errorf("Location %q for operation %s", got.Header.Get("Location"), op.ID)
	}
	return op
}

// run begins an operation, waits for its end, and checks how it ended and how many messages it has done.
func (r *running) run(path, body, state string, done int) dlq.Operation {
	r.t.Helper()
	op := r.ended(r.begin(path, body).ID)
	r.wantEnd(op, state, done)
	return op
}

func (r *running) wantEnd(op dlq.Operation, state string, done int) {
	r.t.Helper()
	if op.State != state || op.Progress.Done != done {
		r.t.Errorf("want %s with %d done: %+v", state, done, op)
	}
}

// ended waits for the end of an operation.
func (r *running) ended(id string) dlq.Operation {
	r.t.Helper()
	var op dlq.Operation
	brokertest.Eventually(r.t, time.Minute, "operation "+id+" has ended", func() bool {
		r.decode("operation", r.do(http.MethodGet, r.control, "/dlq/operations/"+id, nil), http.StatusOK, &op)
		return op.State != "running"
	})
	return op
}
