package topologytest

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// TestShapes: beside whatever exists, the sidecar finds every difference, changes nothing, and either handles messages
// as ever or leaves all of them alone.
func TestShapes(t *testing.T) {
	t.Parallel()
	for name, s := range shapes(version(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.try(t)
		})
	}
}

func (s *shape) plan(t *testing.T) *topology.Plan {
	t.Helper()
	o, two := s.options, 2
	o.Service = "orders-svc"
	if o.Preset == "" {
		o.RetryDelay = brief
	}
	if !s.unhurried {
		o.MaxRetries = &two
	}
	p, err := topology.Build(o)
	if err != nil {
		t.Fatal(err)
	}
	p.Attempt = time.Minute
	return p
}

func (s *shape) try(t *testing.T) {
	plan := s.plan(t)
	place(t, plan)
	url := brokertest.URL(t)
	if s.policy != "" {
		brokertest.Ctl(t, "set_policy", "p", "^orders[.]queue[.]", s.policy)
	}
	conn := s.declare(t, url)
	for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
		wanted := plan
		if mode == topology.ModeVerify {
			wanted = plan.WithoutReject()
		}
		s.judged(t, url, wanted, mode)
		if mode == topology.ModeVerify && !drawn(t.Name(), 6) {
			continue
		}
		r := startIn(t, wanted, mode)
		if s.breaks() {
			r.consumesNothing(t)
		} else {
			s.handled(t, r)
		}
		r.stop()
		if err := s.declareOn(conn); err != nil { // something was changed
			t.Error(err)
		}
	}
}

func (s *shape) breaks() bool {
	return slices.ContainsFunc(s.finds, func(f string) bool { return strings.HasPrefix(f, "problem") })
}

// declare makes what exists, and returns the connection that did. A quorum queue that has no leader after five seconds, on
// a busy machine, costs the connection and is not there.
func (s *shape) declare(t *testing.T, url string) (conn *amqp.Connection) {
	t.Helper()
	brokertest.Eventually(t, patience, "what exists is declared", func() bool {
		conn = brokertest.Conn(t, url)
		err := s.declareOn(conn)
		if refusal, ok := errors.AsType[*amqp.Error](err); err != nil && (!ok || refusal.Code != amqp.InternalError) {
			t.Fatal(err)
		}
		return err == nil
	})
	return conn
}

// declareOn declares what exists. The broker refuses it if something was changed since the last time.
func (s *shape) declareOn(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // it was used
	for _, o := range s.given {
		if o.kind != "" {
			err = ch.ExchangeDeclare(o.name, o.kind, !o.transient, o.autoDelete, o.internal, false, o.args)
		} else {
			_, err = ch.QueueDeclare(o.name, !o.transient && !o.exclusive, o.autoDelete, o.exclusive, false, o.args)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judged compares the findings with the table.
func (s *shape) judged(t *testing.T, url string, plan *topology.Plan, mode topology.Mode) {
	t.Helper()
	report := ensure(t, url, plan, mode)
	var found []string
	for _, f := range report.Findings {
		found = append(found, f.Judgement.String()+" "+f.Property)
		if f.Problem == declare.ProblemDrift && f.Reason == "" || strings.HasPrefix(f.Fix, "delete") || f.Judgement == topology.Breaks && f.Fix == "" {
			t.Errorf("%s: %s", mode, f)
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(slices.Values(s.finds)); !reflect.DeepEqual(found, want) {
		t.Errorf("%s: found %q, want %q\n%v", mode, found, want, report.Findings)
	}
}

// consumesNothing: what is in the queue stays there, and the app is asked nothing.
func (r *rig) consumesNothing(t *testing.T) {
	t.Helper()
	brokertest.Eventually(t, patience, "the sidecar finds that the topology does not fit", r.brokenTopology)
	ids := named("kept "+string(r.mode), 2)
	for _, id := range ids {
		r.put(t, message(id))
	}
	for range 3 { // a check that begins shows that the one before has ended
		r.look <- struct{}{}
	}
	if r.consumer.Active() || len(r.app.Requests()) > 0 || !r.brokenTopology() {
		t.Errorf("%s: active %v, %d requests", r.mode, r.consumer.Active(), len(r.app.Requests()))
	}
	want := map[topology.Mode]int{topology.ModeDeclare: 2, topology.ModeVerify: 4}[r.mode]
	brokertest.Eventually(t, patience, "the messages stay", func() bool { return inQueue(t, r.plan.Queue) == want })
}

// inQueue counts the messages of a queue that another connection may hold.
func inQueue(t *testing.T, name string) int {
	t.Helper()
	for _, row := range brokertest.Rows(t, "queues", "name", "messages") {
		if row["name"] == name {
			n, _ := row["messages"].(float64)
			return int(n)
		}
	}
	return -1
}

// handled takes messages to every end that they have, and counts what the app receives.
func (s *shape) handled(t *testing.T, r *rig) {
	t.Helper()
	brokertest.Eventually(t, patience, "the sidecar consumes", r.consumer.Active)
	retries := r.plan.MaxRetries
	scripts := s.scripts(r.mode, retries)
	channel := brokertest.Channel(t, r.url)
	exchange, key, _ := front(r.plan)
	for name, script := range scripts {
		id := name + " " + string(r.mode)
		r.app.On(id, script...)
		if slices.ContainsFunc(s.given, func(o object) bool { return o.internal }) {
			exchange, key = "", r.plan.Queue
		}
		m := message(id)
		m.Priority = priority
		brokertest.Publish(t, channel, exchange, key, m)
	}
	for name := range scripts {
		id := name + " " + string(r.mode)
		end, want := r.end(t, id, 1), settled{ID: id, Outcome: "ack", Reason: "success"}
		attempts, counts := len(scripts[name]), true
		switch name {
		case "always":
			want.Outcome, want.Reason, attempts = "park", "max_retries", retries+1
		case "at once":
			want.Outcome, want.Reason = "park", "disposition"
		case "early":
			counts = false
		}
		if end.Outcome != want.Outcome || end.Reason != want.Reason || len(r.log.finals(id)) != 1 {
			t.Errorf("%s ended by %+v, want %+v", id, r.log.finals(id), want)
		}
		s.received(t, r, id, attempts, counts)
	}
	s.parked(t, r, scripts)
}

// scripts are the app's answers, by the name of the message.
func (s *shape) scripts(mode topology.Mode, retries int) map[string][]apptest.Reply {
	ok, early := status(http.StatusOK), 2
	if mode == topology.ModeDeclare { // once is enough
		early = max(early, s.early)
	}
	scripts := map[string][]apptest.Reply{
		"ok":      {ok},
		"once":    {failing(), ok},
		"early":   append(slices.Repeat([]apptest.Reply{status(http.StatusTooEarly)}, early), ok),
		"at once": {status(http.StatusConflict, "Amqp-Disposition: park")},
	}
	if !s.unhurried {
		scripts["often"] = append(slices.Repeat([]apptest.Reply{failing()}, retries), ok)
		scripts["always"] = []apptest.Reply{failing()}
	}
	return scripts
}

// received compares what the app has received of a message. The count of retries goes up with each receipt, or not at
// all.
func (s *shape) received(t *testing.T, r *rig, id string, attempts int, counts bool) {
	t.Helper()
	list := r.app.Seen(id)
	if len(list) != attempts {
		t.Errorf("%s was received %d times, want %d", id, len(list), attempts)
	}
	for i := range list {
		want := 0
		if counts {
			want = i
		}
		if list[i].Number("Amqp-Retry-Count") != want || list[i].Number("Amqp-Delivery-Attempt") != want+1 ||
			list[i].Number("Amqp-Priority") != priority {
			t.Errorf("%s, receipt %d: %v", id, i, list[i].Header)
		}
		if i > 0 && counts && !s.hasty && list[i].At.Sub(list[i-1].At) < tier(r.plan, i-1) {
			t.Errorf("%s: receipt %d came after %v", id, i, list[i].At.Sub(list[i-1].At))
		}
	}
}

// priority of every message, which it keeps.
const priority = 7

// parked: the dead-letter queue has the two messages that end there, with their counts, and no queue has anything else.
func (s *shape) parked(t *testing.T, r *rig, scripts map[string][]apptest.Reply) {
	t.Helper()
	r.stop()
	want := map[string][2]any{"at once " + string(r.mode): {"disposition", int32(0)}}
	if scripts["always"] != nil {
		want["always "+string(r.mode)] = [2]any{"max_retries", int32(r.plan.MaxRetries)} //nolint:gosec // a few
	}
	for len(want) > 0 {
		d := brokertest.Get(t, r.url, r.plan.Park.Queue, patience)
		got := [2]any{d.Headers["x-final-reason"], d.Headers["x-final-retry-count"]}
		if got != want[d.MessageId] || d.Priority != priority {
			t.Errorf("%s is parked with %v, want %v", d.MessageId, got, want[d.MessageId])
		}
		delete(want, d.MessageId)
	}
	for _, row := range brokertest.Rows(t, "queues", "name") {
		name, _ := row["name"].(string)
		brokertest.WaitReady(t, r.url, name, 0)
	}
}
