package topologytest

import (
	"errors"
	"net/http"
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
	if o.Preset == "" {
		o.RetryDelay = brief
	}
	if !s.unhurried {
		o.MaxRetries = &two
	}
	p := build(t, o)
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
		if f.Judgement != topology.Harmless {
			property, _, _ := strings.Cut(f.Property, ",") // the first of those with one reason
			found = append(found, f.Judgement.String()+" "+property)
		}
		if f.Problem == declare.ProblemDrift && f.Reason == "" || strings.HasPrefix(f.Fix, "delete") || f.Judgement == topology.Breaks && f.Fix == "" {
			t.Errorf("%s: %s", mode, f)
		}
	}
	slices.Sort(found)
	want := slices.DeleteFunc(slices.Clone(s.finds), func(f string) bool { return f == "" })
	if slices.Sort(want); !slices.Equal(found, want) {
		t.Errorf("%s: found %q, want %q\n%v", mode, found, want, report.Findings)
	}
}

// consumesNothing: what is in the queue stays there, and the app is asked nothing.
func (r *rig) consumesNothing(t *testing.T) {
	t.Helper()
	brokertest.Eventually(t, patience, "the sidecar finds that the topology does not fit", r.brokenTopology)
	before := inQueue(t, r.plan.Queue)
	r.put(t, message("kept"), message("kept, too"))
	for range 3 { // a check that begins shows that the one before has ended
		r.look <- struct{}{}
	}
	if r.consumer.Active() || len(r.app.Requests()) > 0 || !r.brokenTopology() {
		t.Errorf("%s: active %v, %d requests", r.mode, r.consumer.Active(), len(r.app.Requests()))
	}
	brokertest.Eventually(t, patience, "the messages stay", func() bool { return inQueue(t, r.plan.Queue) == before+2 })
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

// handled takes messages to every end that they have.
func (s *shape) handled(t *testing.T, r *rig) {
	t.Helper()
	r.consumes(t)
	channel := brokertest.Channel(t, r.url)
	exchange, key, _ := front(r.plan)
	if slices.ContainsFunc(s.given, func(o object) bool { return o.internal }) {
		exchange, key = "", r.plan.Queue
	}
	all := s.endings(r)
	for id, e := range all {
		r.app.On(id, e.answers...)
		m := message(id)
		m.Priority = priority
		brokertest.Publish(t, channel, exchange, key, m)
	}
	for id, e := range all {
		r.ends(t, id, 1, e.outcome, e.reason)
		if list := r.receipts(t, id, e.counts...); e.counts[len(e.counts)-1] > 0 && !s.hasty {
			waited(t, list, r.tier)
		}
	}
	r.stop()
	s.parked(t, r, all)
}

// ending is what the app answers to a message, the counts of retries that it receives, and how the message ends.
type ending struct {
	answers         []apptest.Reply
	counts          []int
	outcome, reason string
}

// endings are those of messages by their ids.
func (s *shape) endings(r *rig) map[string]ending {
	early, retries := 2, r.plan.MaxRetries
	if r.mode == topology.ModeDeclare { // once is enough
		early = max(early, s.early)
	}
	if s.unhurried {
		retries = 1
	}
	then := func(n int, first apptest.Reply) []apptest.Reply {
		return append(slices.Repeat([]apptest.Reply{first}, n), status(http.StatusOK))
	}
	mode := string(r.mode)
	all := map[string]ending{
		"often " + mode:   {then(retries, failing()), counting(retries), "ack", "success"},
		"early " + mode:   {then(early, status(http.StatusTooEarly)), make([]int, early+1), "ack", "success"},
		"at once " + mode: {[]apptest.Reply{parking()}, []int{0}, "park", "disposition"},
	}
	if !s.unhurried {
		all["always "+mode] = ending{[]apptest.Reply{failing()}, counting(retries), "park", "max_retries"}
	}
	return all
}

// priority of every message, which it keeps.
const priority = 7

// parked: the dead-letter queue has the messages that end there, with their counts, and no queue has anything else.
func (s *shape) parked(t *testing.T, r *rig, all map[string]ending) {
	t.Helper()
	for _, e := range all {
		if e.outcome != "park" {
			continue
		}
		d := brokertest.Get(t, r.url, r.plan.Park.Queue, patience)
		was := all[d.MessageId]
		if d.Priority != priority || d.Headers["x-final-reason"] != was.reason ||
			d.Headers["x-final-retry-count"] != int32(was.counts[len(was.counts)-1]) { //nolint:gosec // a few
			t.Errorf("%s is parked with priority %d, %v", d.MessageId, d.Priority, d.Headers)
		}
	}
	for _, row := range brokertest.Rows(t, "queues", "name") {
		name, _ := row["name"].(string)
		brokertest.WaitReady(t, r.url, name, 0)
	}
}
