package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/admin"
	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/flow"
	"sidecar/internal/testkit/must"
)

const refusedQueue = "demo.queue.demo-orders"

// scene is a broker that has the topology, and a user of the sidecar who may do everything at first.
type scene struct {
	t    *testing.T
	ch   *amqp.Channel
	user string
}

func newScene(t *testing.T, mode string) (*scene, *config.Config) {
	t.Helper()
	user, cfg := account(t, "SIDECAR_TOPOLOGY_MODE="+mode)
	s := &scene{t, brokertest.Channel(t, brokertest.URL(t)), user}
	s.permit(".*")
	return s, cfg
}

func (s *scene) remove() { must.Get(s.ch.QueueDelete(refusedQueue, false, false, false))(s.t) }

func (s *scene) declare() {
	must.Get(s.ch.QueueDeclare(refusedQueue, true, false, false, false, nil))(s.t)
}

func (s *scene) consumeAlone() {
	must.Get(s.ch.Consume(refusedQueue, "alone", false, true, false, false, nil))(s.t)
}

func (s *scene) consumeNoMore() { must.Do(s.t, s.ch.Cancel("alone", false)) }

func (s *scene) permit(read string) {
	brokertest.Ctl(s.t, "set_permissions", s.user, ".*", ".*", read)
}

// TestQueueCannotBeConsumed: whatever keeps the queue from being consumed, at the start or later and in whichever mode, is
// said with the broker's reason while the connection is up, and is over when the queue is consumed.
func TestQueueCannotBeConsumed(t *testing.T) {
	t.Parallel()
	type trouble struct {
		refuse, admit func(*scene)
		says          string
	}
	gone := trouble{(*scene).remove, (*scene).declare, "404 NOT_FOUND - no queue"}
	// The broker asks for the right when a consumer begins.
	revoked := trouble{func(s *scene) { s.permit("^$"); s.remove(); s.declare() }, func(s *scene) { s.permit(".*") }, "403 ACCESS_REFUSED"}
	alone := trouble{(*scene).consumeAlone, (*scene).consumeNoMore, "403 ACCESS_REFUSED"}
	for name, c := range map[string]struct {
		mode     string
		troubles []trouble // one after the other; the first one is there at the start
	}{
		"gone": {"none", []trouble{gone, gone}}, "no right": {"none", []trouble{revoked}}, "another consumer alone": {"declare", []trouble{alone}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			declared(t, live(t))
			s, cfg := newScene(t, c.mode)
			c.troubles[0].refuse(s)
			a, log, _ := run(t, cfg, dialing(func(o *broker.Options) { o.Backoff = time.Millisecond }))
			over := func() int { return len(log.Lines(`"msg":"broker channel over"`)) }
			for i, now := range c.troubles {
				if i > 0 {
					now.refuse(s)
				}
				brokertest.Eventually(t, time.Minute, "a reason", func() bool { return strings.Contains(refusal(a.Status().Pauses), now.says) })
				tries := over()
				brokertest.Eventually(t, time.Minute, "some more tries", func() bool { return over() > tries+1 })
				saysRefused(t, a, now.says)
				now.admit(s)
				brokertest.Eventually(t, time.Minute, "consuming again", func() bool { return a.Ready("").Ready && a.subscriptions[0].consumer.Active() })
				if st := a.Status(); st.State != admin.Consuming || len(st.Pauses) > 0 {
					t.Errorf("%+v", st)
				}
				paused, resumed := log.Lines(`"msg":"paused"`, `"reason":"queue"`), log.Lines(`"msg":"resumed"`, `"reason":"queue"`)
				if len(paused) != i+1 || !strings.Contains(paused[i], now.says) || len(resumed) != i+1 {
					t.Errorf("logged %q, %q", paused, resumed)
				}
			}
		})
	}
}

// refusal returns the detail of the pause for a queue that cannot be consumed; "": there is none.
func refusal(pauses []admin.Pause) string {
	i := slices.IndexFunc(pauses, func(p admin.Pause) bool { return p.Reason == flow.Queue })
	if i < 0 {
		return ""
	}
	return pauses[i].Detail
}

// saysRefused checks that a says on all its surfaces that its only queue cannot be consumed.
func saysRefused(t *testing.T, a *App, says string) {
	t.Helper()
	want := `queue "` + refusedQueue + `" cannot be consumed: ` + says
	st, r := a.Status(), a.Ready("")
	if st.State != admin.Paused || !st.Consume.Connected || !strings.HasPrefix(refusal(st.Pauses), want) {
		t.Errorf("status %+v", st)
	}
	for _, c := range r.Checks {
		if c.OK != (c.Name != "consuming") || c.Name == "consuming" && !strings.HasPrefix(c.Detail, want) {
			t.Errorf("check %+v", c)
		}
	}
	if n := brokertest.Metric(t, a.registry, "sidecar_paused", "queue", refusedQueue, "reason", "queue"); r.Ready || n != 1 {
		t.Errorf("ready %t, sidecar_paused %v", r.Ready, n)
	}
}

// TestOneOfTwoQueuesCannotBeConsumed: the status names that one, and the other is consumed. So is a third one as soon as its
// topology, which is only verified, has been declared.
func TestOneOfTwoQueuesCannotBeConsumed(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	first := live(t, "SIDECAR_APP_URL="+app.URL, "SIDECAR_TOPOLOGY_MODE=none")
	second := live(t, "SIDECAR_SERVICE=demo-refunds", "SIDECAR_APP_URL="+app.URL)
	third := live(t, "SIDECAR_SERVICE=demo-third", "SIDECAR_TOPOLOGY_MODE=verify", "SIDECAR_APP_URL="+app.URL)
	first.Subscription, second.Subscription, third.Subscription = "orders", "refunds", "third"
	a, _, _ := run(t, together(first, second, third))
	absent, there := a.subscriptions[0].plan.Queue, a.subscriptions[1].plan.Queue
	brokertest.Eventually(t, time.Minute, "a reason, and the other is consumed", func() bool {
		st := a.Status()
		return refusal(st.Pauses) != "" && len(st.Findings) > 0 && a.Ready("refunds").Ready
	})
	st := a.Status()
	if f := st.Findings[0]; f.Subscription != "third" || f.Problem != "missing" || len(st.Subscriptions[2].Findings) == 0 || a.Ready("third").Ready {
		t.Errorf("%+v", st.Findings)
	}
	declared(t, third)
	ask(a.subscriptions[2].check)
	brokertest.Eventually(t, time.Minute, "the third is consumed", func() bool { return a.Ready("third").Ready })
	st = a.Status()
	if st.State != admin.Consuming || len(st.Pauses) != 1 || st.Pauses[0].Of != (admin.Of{Subscription: "orders", Queue: absent}) {
		t.Errorf("all: %+v", st)
	}
	if of := st.Subscriptions; of[0].State != admin.Paused || refusal(of[0].Pauses) == "" || of[1].State != admin.Consuming || len(of[1].Pauses) > 0 {
		t.Errorf("each: %+v", of)
	}
	if a.Ready("").Ready || a.Ready("orders").Ready {
		t.Error("ready without one of the queues")
	}
	brokertest.Send(t, brokertest.URL(t), there, "m")
	brokertest.Eventually(t, time.Minute, "a message of the other", func() bool { return len(app.Requests()) == 1 })
	brokertest.Queue(t, brokertest.URL(t), absent, nil)
	brokertest.Eventually(t, time.Minute, "both are consumed", func() bool { return a.Ready("").Ready && len(a.Status().Pauses) == 0 })
}
