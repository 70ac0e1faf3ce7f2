package app

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// measured waits until a whole measurement has begun and ended since the call.
func measured(t *testing.T, s *subscription) {
	t.Helper()
	for range 3 {
		ask(s.measure)
		brokertest.Eventually(t, time.Minute, "a measurement begins", func() bool { return len(s.measure) == 0 })
	}
}

// problems is the output of check for cfg, which must find a problem.
func problems(t *testing.T, cfg *config.Config) string {
	t.Helper()
	var out bytes.Buffer
	if err := Check(t.Context(), cfg, &out, false, plain); !errors.Is(err, errFindings) && !errors.Is(err, ErrMissing) {
		t.Errorf("check: %v", err)
	}
	return out.String()
}

// onlyLine fails unless the log has one line about objects, of that problem, and the status the same finding.
func onlyLine(t *testing.T, a *App, log *apptest.Log, problem declare.Problem) declare.Finding {
	t.Helper()
	brokertest.Eventually(t, time.Minute, "a finding, and its line", func() bool {
		return len(a.Status().Findings) > 0 && len(log.Lines(`"object":`)) > 0
	})
	all := a.Status().Findings
	lines := log.Lines(`"object":`)
	if len(all) != 1 || all[0].Problem != problem || len(lines) != 1 || !strings.Contains(lines[0], `"problem":"`+string(problem)+`"`) {
		t.Fatalf("findings %+v, logged %q", all, lines)
	}
	return all[0].Finding
}

// TestMissingRightIsOneLine: in mode declare, what the user may not declare is one finding with the right. Neither run
// nor check says that it is declared, or that it would be.
func TestMissingRightIsOneLine(t *testing.T) {
	t.Parallel()
	all := []string{"main-exchange", "retry-exchange", "dlq", "retry-queue", "queue"}
	for name, c := range map[string]struct {
		configure, read string
		without         []string // kinds of objects that cannot be declared
	}{
		"configure":        {"^$", ".*", all},
		"configure of two": {`^demo\.(?!dlq|retry-queue)`, ".*", []string{"dlq", "retry-queue"}},
		"read":             {".*", "^$", []string{"retry-queue", "queue"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user, cfg := account(t)
			brokertest.Ctl(t, "set_permissions", user, c.configure, ".*", c.read)
			check := problems(t, cfg)
			if missing := strings.Count(check, "  a durable "); missing != len(all)-len(c.without) || strings.Count(check, ": permission") != 1 {
				t.Errorf("check:\n%s", check)
			}
			a, log, _ := run(t, cfg)
			sub := a.subscriptions[0]
			brokertest.Eventually(t, time.Minute, "a finding and a session", func() bool { return sub.status.bad() && sub.connected() })
			measured(t, sub)
			f := onlyLine(t, a, log, declare.ProblemPermission)
			for _, kind := range c.without {
				if !strings.Contains(f.Object, `"demo.`+kind) || !strings.Contains(check, `"demo.`+kind) {
					t.Errorf("no %s in %q, or in\n%s", kind, f.Object, check)
				}
			}
		})
	}
}

// TestDeletedAndNotDeclaredAgain: where the broker refuses to declare a deleted queue again, its reason is the only line.
func TestDeletedAndNotDeclaredAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse  func(t *testing.T, user string)
		queue   func(*topology.Plan) string
		problem declare.Problem
	}{
		"right taken away": {
			func(t *testing.T, user string) { brokertest.Ctl(t, "set_permissions", user, "^$", ".*", ".*") },
			func(p *topology.Plan) string { return p.Queue }, declare.ProblemPermission,
		},
		"limit lowered": {
			func(t *testing.T, _ string) { brokertest.QueueLimit(t, 1) },
			func(p *topology.Plan) string { return p.Waits[0].Queue }, declare.ProblemRefused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user, cfg := account(t)
			brokertest.Ctl(t, "set_permissions", user, ".*", ".*", ".*")
			a, sub, log := consuming(t, cfg)
			queue := c.queue(a.plan)
			c.refuse(t, user)
			must.Get(brokertest.Channel(t, brokertest.URL(t)).QueueDelete(queue, false, false, false))(t)
			brokertest.Eventually(t, time.Minute, "a finding and a session", func() bool {
				ask(sub.measure)
				return sub.status.bad() && sub.connected()
			})
			measured(t, sub)
			if f := onlyLine(t, a, log, c.problem); !strings.Contains(f.Object, topology.QueueTitle(queue)) || log.Lines("declared again") != nil {
				t.Errorf("%v", f)
			}
		})
	}
}

// TestReturnedByANodeThatIsDown: a retry or parked message is returned because the node of its queue is down. That is one
// line in every mode, and no line advises anything.
func TestReturnedByANodeThatIsDown(t *testing.T) {
	t.Parallel()
	park := func(p *topology.Plan) string { return p.Park.Queue }
	wait := func(p *topology.Plan) string { return p.Waits[0].Queue }
	for _, c := range []struct {
		mode, retries string
		queue         func(*topology.Plan) string
	}{{"declare", "0", park}, {"verify", "3", wait}, {"none", "0", park}} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			gate, app := make(chan struct{}), apptest.NewApp(t)
			app.On("", apptest.Held(gate, apptest.Say(apptest.Status(500))))
			env := []string{"SIDECAR_APP_URL=" + app.URL, "SIDECAR_MAX_RETRIES=" + c.retries, "SIDECAR_RETRY_DELAYS=1s"} // by publish
			declared(t, live(t, env...))
			a, sub, log := consuming(t, live(t, append(env, "SIDECAR_TOPOLOGY_MODE="+c.mode)...))
			brokertest.Send(t, brokertest.URL(t), a.plan.Queue, "m")
			brokertest.Eventually(t, time.Minute, "the app has it", func() bool { return len(app.Requests()) > 0 })
			queue := c.queue(a.plan)
			if _, down := brokertest.NodeDown(t, queue); !down {
				return
			}
			close(gate)
			brokertest.Eventually(t, time.Minute, "several publishes that were returned", func() bool { return len(log.Lines(`"publish failed"`)) > 2 })
			measured(t, sub)
			f := onlyLine(t, a, log, declare.ProblemRefused)
			if f.Object != topology.QueueTitle(queue) || !strings.Contains(f.Found, "is down") || f.Fix != "" || log.Lines("topology fits") != nil {
				t.Errorf("%v", f)
			}
		})
	}
}

// TestModeNoneReportsWhatAMessageNeeded: without anything but the service's queue, nothing is reported until a publish
// fails for it; then by status, log and metric alike.
func TestModeNoneReportsWhatAMessageNeeded(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	app.On("", apptest.Say(apptest.Status(500)))
	cfg := live(t, "SIDECAR_APP_URL="+app.URL, "SIDECAR_TOPOLOGY_MODE=none")
	plan := must.Get(newPlan(cfg))(t)
	brokertest.Queue(t, brokertest.URL(t), plan.Queue, nil)
	a, sub, log := consuming(t, cfg)
	measured(t, sub)
	pauses := func() float64 {
		return brokertest.Metric(t, a.registry, "sidecar_paused", "queue", plan.Queue, "reason", "topology")
	}
	if st := a.Status(); len(st.Findings) > 0 || log.Lines(`"object":`) != nil || pauses() != 0 || !a.Ready("").Ready {
		t.Errorf("status %+v, logged %q", st, log.Lines(`"object":`))
	}
	brokertest.Send(t, brokertest.URL(t), plan.Queue, "m")
	brokertest.Eventually(t, time.Minute, "a finding", sub.status.bad)
	measured(t, sub)
	f := onlyLine(t, a, log, declare.ProblemMissing)
	if f.Object != topology.ExchangeTitle(plan.Waits[0].Exchange) || pauses() != 1 || a.Ready("").Ready {
		t.Errorf("%v", f)
	}
	declared(t, live(t))
	brokertest.Eventually(t, time.Minute, "consuming again", func() bool {
		ask(sub.measure)
		return sub.consumer.Active() && !sub.status.bad() && pauses() == 0
	})
}

// TestBindingThatAnotherServiceDeclares: the user may not declare the binding of a shared dead-letter queue. Nothing is
// reported until a parked message is returned; then it is the missing right.
func TestBindingThatAnotherServiceDeclares(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	app.On("", apptest.Say(apptest.Status(409, "Amqp-Disposition: park")))
	env := []string{"SIDECAR_SERVICE=freeflow-user", "SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_APP_URL=" + app.URL}
	plan := declared(t, live(t, env...))
	park, ch := plan.Park, brokertest.Channel(t, brokertest.URL(t))
	for _, b := range plan.Bindings {
		if b.Queue == park.Queue {
			must.Do(t, ch.QueueUnbind(b.Queue, b.Key, b.Exchange, nil))
		}
	}
	user, cfg := account(t, env...)
	brokertest.Ctl(t, "set_permissions", user, ".*", `^(?!`+park.Queue+`$)`, ".*")
	a, _, log := consuming(t, cfg)
	brokertest.Send(t, brokertest.URL(t), a.plan.Queue, "m")
	brokertest.Eventually(t, time.Minute, "some returned publications", func() bool { return len(log.Lines(`"publish failed"`)) > 2 })
	if f := onlyLine(t, a, log, declare.ProblemPermission); !strings.Contains(f.Object, park.Queue) || !strings.Contains(f.Fix, "set_permissions") {
		t.Errorf("%v", f)
	}
}
