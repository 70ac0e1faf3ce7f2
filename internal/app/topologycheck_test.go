package app

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// dialing changes how the connection that consumes is made, and only that one.
func dialing(change func(*broker.Options)) func(*App) {
	return func(a *App) {
		o := brokerOptions(a.cfg, "consume", a.build)
		o.Logger = a.log
		change(&o)
		a.dialer = broker.NewDialer(o)
	}
}

// isolated sends that connection through the proxy.
func isolated(t *testing.T, proxy *brokertest.Proxy) func(*App) {
	url := proxy.URL(t, brokertest.URL(t))
	return dialing(func(o *broker.Options) { o.URLs = func() ([]string, error) { return []string{url}, nil } })
}

// TestNewSessionForgetsAReturnedPublication: a park is returned for a missing binding, and the session ends during the
// check that follows. The next session begins with a check of its own, so it has no finding.
func TestNewSessionForgetsAReturnedPublication(t *testing.T) {
	t.Parallel()
	gate, app := make(chan struct{}), apptest.NewApp(t)
	app.On("", apptest.Held(gate, apptest.Say(apptest.Status(409, "Amqp-Disposition: park"))))

	url := brokertest.URL(t)
	env := []string{"SIDECAR_DLX=dlx", "SIDECAR_APP_URL=" + app.URL + "/"}
	declared(t, live(t, env...)) // what the sidecar may only verify
	proxy := brokertest.NewProxy(t, url)
	// A check that runs when the stall begins would keep ours waiting.
	a, sub, _ := consuming(t, live(t, append(env, "SIDECAR_TOPOLOGY_MODE=verify")...), isolated(t, proxy), checkEvery(time.Hour))
	brokertest.Eventually(t, time.Minute, "no check is asked for or running", func() bool {
		sub.checkMu.Lock()
		defer sub.checkMu.Unlock()
		return sub.pending == nil && len(sub.check) == 0
	})
	brokertest.Send(t, url, a.plan.Queue, "homeless")
	brokertest.Eventually(t, time.Minute, "the app has it", func() bool { return len(app.Requests()) > 0 })
	asked := time.Now()
	ask(sub.check)
	brokertest.Eventually(t, time.Minute, "a check has ended, and none is asked for or running", func() bool {
		sub.checkMu.Lock()
		defer sub.checkMu.Unlock()
		return sub.checkedAt.After(asked) && len(sub.check) == 0
	})

	ch, park := brokertest.Channel(t, url), a.plan.Park
	proxy.Stall(brokertest.Both) // no check and no repair is possible
	must.Do(t, ch.QueueUnbind(park.Queue, park.Key, park.Exchange, nil))
	close(gate)
	// The session ends during the check, or before it, where a measurement that ran when the stall began had no answer.
	brokertest.Eventually(t, time.Minute, "the park was returned and a check has begun", func() bool {
		return sub.unexplained.Load() && (len(sub.check) == 0 || !sub.connected())
	})
	proxy.Refuse()
	brokertest.Eventually(t, time.Minute, "the session is over, and nothing is published for it any more", func() bool {
		return !sub.connected() && sub.consumer.Unpublished() == 0 && sub.consumer.Inflight() == 0
	})
	if !sub.unexplained.Load() || sub.flow.Open() {
		t.Fatal("the pause has ended before the new session")
	}
	must.Do(t, ch.QueueBind(park.Queue, park.Key, park.Exchange, false, nil))
	proxy.Restore(t)
	brokertest.Eventually(t, time.Minute, "the new session", sub.connected)
	if st := a.Status(); len(st.Findings) > 0 || len(st.Pauses) > 0 {
		t.Errorf("the new session is up: findings %+v, pauses %+v", st.Findings, st.Pauses)
	}
	if c := a.Ready("").Checks[1]; c.Name != "topology" || !c.OK {
		t.Errorf("the new session is up: %+v", c)
	}
	if d := brokertest.Get(t, url, park.Queue, time.Minute); string(d.Body) != "homeless" {
		t.Errorf("parked %q", d.Body)
	}
}

// TestSessionEndsWithItsChecks: without a free channel for checks of the topology the session ends, although messages
// are still delivered.
func TestSessionEndsWithItsChecks(t *testing.T) {
	t.Parallel()
	a := fresh(t, live(t))
	sub := a.subscriptions[0]
	s := must.Get(a.dialer.Dial(t.Context()))(t)
	t.Cleanup(s.Close)
	ended := make(chan error, 1)
	go func() { ended <- sub.serve(t.Context(), s) }()
	brokertest.Eventually(t, time.Minute, "the session is served", sub.connected)
	for err := error(nil); err == nil; _, err = s.Channel(t.Context()) {
	}
	must.Do(t, s.Err())
	ask(sub.check)
	brokertest.Eventually(t, time.Minute, "the session has ended", func() bool { return len(ended) > 0 && s.Err() != nil })
}

// remade deletes a queue and declares it otherwise, as an operator does. The sidecar may be faster.
func remade(t *testing.T, queue string, args amqp.Table) {
	t.Helper()
	brokertest.Eventually(t, time.Minute, queue+" as an operator wants it", func() bool {
		ch := brokertest.Channel(t, brokertest.URL(t))
		must.Get(ch.QueueDelete(queue, false, false, false))(t)
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err == nil
	})
}

// TestQueueMadeAsWanted: the retry queue has another delay, and an operator makes it anew with the wanted one while a
// message is in flight. The message is settled by what is there then, and the session goes on.
func TestQueueMadeAsWanted(t *testing.T) {
	t.Parallel()
	gate, app := make(chan struct{}), apptest.NewApp(t)
	fail := apptest.Say(apptest.Status(500))
	app.On("", fail, apptest.Held(gate, fail), apptest.Say(apptest.Status(200)))
	cfg := live(t, "SIDECAR_APP_URL="+app.URL+"/", "SIDECAR_RETRY_DELAY=300ms")
	plan := must.Get(newPlan(cfg))(t)
	wait, url := plan.Waits[0].Queue, brokertest.URL(t)
	delay := func(ms int64) amqp.Table {
		return amqp.Table{topology.ArgTTL: ms, topology.ArgDLX: "", topology.ArgDLKey: plan.Queue}
	}
	brokertest.Queue(t, url, wait, delay(5000))
	_, sub, log := consuming(t, cfg, checkEvery(300*time.Millisecond))
	brokertest.Send(t, url, plan.Queue, "m")
	brokertest.Eventually(t, time.Minute, "the second attempt", func() bool { return len(app.Requests()) > 1 })
	if len(sub.status.tolerated()) != 1 || brokertest.Ready(t, url, wait+".300ms") != 0 {
		t.Errorf("the retry did not wait beside the old queue: %v", sub.status.tolerated())
	}
	remade(t, wait, delay(300))
	brokertest.Eventually(t, time.Minute, "the new retry queue is used", func() bool { return len(sub.status.tolerated()) == 0 })
	must.Get(brokertest.Channel(t, url).QueueDelete(wait+".300ms", false, false, false))(t)
	close(gate)
	brokertest.Eventually(t, time.Minute, "the third attempt", func() bool { return len(app.Requests()) > 2 })
	for i, r := range app.Requests() {
		if n := r.Number("Amqp-Retry-Count"); n != i {
			t.Errorf("attempt %d has retry count %d", i+1, n)
		}
	}
	if n := strings.Count(log.String(), "broker session over"); n > 0 || brokertest.Ready(t, url, wait+".300ms") >= 0 {
		t.Errorf("%d sessions have ended", n)
	}
}

// TestToleratedBreaksAndReturns: what is weaker than planned is made anew so that parked messages would be lost, and then
// as it was.
func TestToleratedBreaksAndReturns(t *testing.T) {
	t.Parallel()
	cfg := live(t)
	plan, url := must.Get(newPlan(cfg))(t), brokertest.URL(t)
	weaker := amqp.Table{"x-max-length": int64(7)}
	brokertest.Queue(t, url, plan.Park.Queue, weaker)
	a, log, _ := run(t, cfg, checkEvery(300*time.Millisecond))
	sub := a.subscriptions[0]
	for range 2 {
		brokertest.Eventually(t, time.Minute, "consuming", func() bool {
			return sub.consumer.Active() && len(sub.status.tolerated()) == 1 && !sub.status.bad()
		})
		remade(t, plan.Park.Queue, amqp.Table{topology.ArgTTL: int64(1000)})
		brokertest.Eventually(t, time.Minute, "a pause that names the argument and a fix", func() bool {
			all, _ := sub.status.last()
			return sub.status.bad() && len(all) == 1 && all[0].Property == topology.ArgTTL && all[0].Fix != "" &&
				!sub.consumer.Active() && !a.Ready("").Ready
		})
		remade(t, plan.Park.Queue, weaker)
	}
	brokertest.Eventually(t, time.Minute, "consuming at last", sub.consumer.Active)
	if n := strings.Count(log.String(), "broker session over"); n > 0 {
		t.Errorf("%d sessions have ended, for a topology that is what it was", n)
	}
}

// TestWhoDeclaresAMissingObject: in mode declare a deleted exchange of another service is a finding that advises its
// owner; an own queue is declared again, which is the only line about it.
func TestWhoDeclaresAMissingObject(t *testing.T) {
	t.Parallel()
	ch := brokertest.Channel(t, brokertest.URL(t))
	must.Do(t, ch.ExchangeDeclare("of-another", "topic", true, false, false, false, nil))
	a, sub, log := consuming(t, live(t, "SIDECAR_BINDINGS=of-another:key"))
	only := func(object, text string) {
		t.Helper()
		brokertest.Eventually(t, time.Minute, "the log says of "+object+": "+text, func() bool {
			ask(sub.measure)
			lines := log.Lines(`"object":`, object)
			if len(lines) > 0 && !strings.Contains(lines[0], text) {
				t.Fatal(lines)
			}
			return len(lines) == 1
		})
	}
	must.Do(t, ch.ExchangeDelete("of-another", false, false))
	only("of-another", "its owner has to declare it")
	must.Do(t, ch.ExchangeDeclare("of-another", "topic", true, false, false, false, nil))
	ask(sub.check)
	brokertest.Eventually(t, time.Minute, "consuming again", func() bool { return sub.consumer.Active() && !sub.status.bad() })
	if lines := log.Lines(`"exchange declared again"`, "of-another", "messages may be lost since"); len(lines) != 1 {
		t.Errorf("%d lines about the deletion of an exchange that its owner declared again", len(lines))
	}
	must.Get(ch.QueueDelete(a.plan.Park.Queue, false, false, false))(t)
	only(a.plan.Park.Queue, `"msg":"queue declared again"`)
}

// TestReturnedPublicationRestoresTheBinding: a message of the app is returned, and a check declares the missing binding at
// once. No periodic check runs meanwhile.
func TestReturnedPublicationRestoresTheBinding(t *testing.T) {
	t.Parallel()
	a, _, _ := consuming(t, live(t, "SIDECAR_PUBLISH_ADDR=127.0.0.1:0"), checkEvery(time.Hour))
	p, b := a.senders[0].publisher, a.plan.Bindings[0]
	brokertest.Eventually(t, time.Minute, "the connection that publishes", p.Connected)
	must.Do(t, brokertest.Channel(t, brokertest.URL(t)).QueueUnbind(b.Queue, b.Key, b.Exchange, nil))
	returned := 0
	brokertest.Eventually(t, time.Minute, "the message is routed", func() bool {
		err := p.Publish(t.Context(), &message.Publication{Exchange: mainExchange(a.cfg, a.plan), Key: b.Key})
		if errors.Is(err, broker.ErrUnroutable) {
			returned++
		}
		return err == nil
	})
	if returned == 0 {
		t.Error("no message was returned: the binding was not removed")
	}
}

// TestUnboundKeyAsksForNoCheck: a message of the app is returned whose key no binding of the topology has. No check that
// was asked for is made, so what asks for one shows for good.
func TestUnboundKeyAsksForNoCheck(t *testing.T) {
	t.Parallel()
	a, sub, _ := consuming(t, live(t, "SIDECAR_SERVICE=freeflow-user", "SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_PUBLISH_ADDR=127.0.0.1:0"),
		checkEvery(time.Hour), func(a *App) { a.subscriptions[0].check = nil })
	p, b := a.senders[0].publisher, a.plan.Bindings[0]
	brokertest.Eventually(t, time.Minute, "the connection that publishes", p.Connected)
	brokertest.Eventually(t, time.Minute, "the check of the session counts no more", func() bool {
		sub.checkMu.Lock()
		defer sub.checkMu.Unlock()
		return time.Since(sub.checkedAt) > checkCounts
	})
	asked := func() bool {
		sub.checkMu.Lock()
		defer sub.checkMu.Unlock()
		was := sub.pending != nil
		sub.pending = nil
		return was
	}
	asked() // by a publisher that connected before its exchange was declared
	for _, exchange := range []string{mainExchange(a.cfg, a.plan), ""} {
		err := p.Publish(t.Context(), &message.Publication{Exchange: exchange, Key: "unbound"})
		if !errors.Is(err, broker.ErrUnroutable) || asked() {
			t.Errorf("publish to %q: %v, want it returned, and no check asked for", exchange, err)
		}
	}
	must.Do(t, brokertest.Channel(t, brokertest.URL(t)).QueueUnbind(b.Queue, b.Key, b.Exchange, nil))
	err := p.Publish(t.Context(), &message.Publication{Exchange: b.Exchange, Key: b.Key})
	if !errors.Is(err, broker.ErrUnroutable) || !asked() {
		t.Errorf("publish with a key of the topology: %v, want it returned, and a check asked for", err)
	}
}

// TestReplacedQueue: another client has declared the retry queue again with another argument, so what waited in it is lost.
func TestReplacedQueue(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"declare", "verify"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			declared(t, live(t)) // what the sidecar may only verify
			a, sub, log := consuming(t, live(t, "SIDECAR_TOPOLOGY_MODE="+mode), checkEvery(time.Hour))
			i := slices.IndexFunc(a.plan.Queues, func(q topology.Queue) bool { return q.Kind == topology.KindRetry })
			q := a.plan.Queues[i]
			args := maps.Clone(q.Args)
			args["x-max-length"] = int64(100_000)
			remade(t, q.Name, args)
			ask(sub.check)
			brokertest.Eventually(t, time.Minute, "the log has it", func() bool {
				return len(log.Lines(`"queue declared again"`, q.Name, `"kind":"retry"`, "messages may be lost since")) == 1
			})
			if recent := sub.sightings.Recent(); len(recent) != 1 || recent[0].Object != q.Title() {
				t.Errorf("%v is shown", recent)
			}
		})
	}
}

// TestRequestedCheckLeavesThePause: after messages that returned at once nothing is consumed until a periodic check,
// whatever asks for a check before.
func TestRequestedCheckLeavesThePause(t *testing.T) {
	t.Parallel()
	_, sub, _ := consuming(t, live(t), checkEvery(time.Hour))
	sub.undelayed()
	for range 2 { // the second one begins when all has been done after the first
		var ended <-chan struct{}
		brokertest.Eventually(t, time.Minute, "a check is asked for", func() bool {
			ended = sub.requestCheck()
			return ended != nil
		})
		<-ended
	}
	if all, _ := sub.status.last(); len(all) != 1 || sub.flow.Open() {
		t.Errorf("findings %v, and consuming is %v", all, sub.flow.Open())
	}
}
