package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// throughout sends all connections through the proxy.
func throughout(t *testing.T, d *brokertest.Disguise, more ...string) []string {
	t.Helper()
	return append(more, "SIDECAR_AMQP_URL="+d.URL(t, brokertest.URL(t)), "SIDECAR_TOPOLOGY=native")
}

// TestOlderNodes: a broker that says that it is older than 4.3, or nothing that can be read, gets nothing declared and
// nothing consumed, and few questions. After the next connection, to 4.3, it goes on by itself.
func TestOlderNodes(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.2.9", brokertest.NoVersion} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			brokertest.Delaying(t)
			app := apptest.NewApp(t)
			d := brokertest.NewDisguise(t, brokertest.URL(t))
			d.As(version)
			a, log, _ := run(t, load(t, throughout(t, d, "SIDECAR_APP_URL="+app.URL+"/")...), checkEvery(time.Hour))
			sub := a.subscriptions[0]
			brokertest.Eventually(t, time.Minute, "the finding", sub.status.bad)
			brokertest.Eventually(t, time.Minute, "the connections", func() bool { return d.Accepted() == 2 })
			if all, _ := sub.status.last(); len(all) != 1 || all[0].Problem != "version" ||
				version != brokertest.NoVersion && all[0].Found != version {
				t.Errorf("findings %v", all)
			}
			if r := a.Ready(""); r.Ready || !strings.Contains(r.Checks[1].Detail, "RabbitMQ 4.3") {
				t.Errorf("ready: %+v", r)
			}
			if st := a.Status(); len(st.Findings) != 1 || st.Findings[0].Problem != "version" {
				t.Errorf("status: %+v", st.Findings)
			}
			for range 3 {
				ask(sub.check)
				brokertest.Eventually(t, time.Minute, "a check begins", func() bool { return len(sub.check) == 0 })
			}
			declares, channels := d.Asked()
			if declares > 0 || channels > 10 || d.Accepted() != 2 || sub.consumer.Active() {
				t.Errorf("%d declares, %d channels, %d connections", declares, channels, d.Accepted())
			}
			if n := strings.Count(log.String(), `"msg":"topology`); n != 1 {
				t.Errorf("%d lines about the topology", n)
			}
			if brokertest.Ready(t, brokertest.URL(t), sub.plan.Queue) >= 0 {
				t.Error("the queue was declared")
			}
			d.Off()
			d.Cut()
			brokertest.Eventually(t, time.Minute, "consuming", sub.consumer.Active)
			brokertest.Send(t, brokertest.URL(t), sub.plan.Queue, "m")
			brokertest.Eventually(t, time.Minute, "the app has it", func() bool { return len(app.Requests()) == 1 })
		})
	}
}

// TestQueueDelaysNothing: a policy takes the delays away while the sidecar runs. A few messages return at once, then
// nothing is consumed; when the policy is gone, the sidecar goes on by itself.
func TestQueueDelaysNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"declare", "none"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			brokertest.Delaying(t)
			queueDelaysNothing(t, mode)
		})
	}
}

func queueDelaysNothing(t *testing.T, mode string) {
	app, url := apptest.NewApp(t), brokertest.URL(t)
	app.Otherwise(func(*apptest.Request) apptest.Reply { return apptest.Say(apptest.Status(409)) })
	env := []string{"SIDECAR_APP_URL=" + app.URL + "/", "SIDECAR_TOPOLOGY=native", "SIDECAR_RETRY_DELAY=300ms",
		"SIDECAR_MAX_RETRIES=100", "SIDECAR_CONCURRENCY=4"}
	declared(t, live(t, env...))
	_, sub, log := consuming(t, live(t, append(env, "SIDECAR_TOPOLOGY_MODE="+mode)...), checkEvery(time.Second))
	brokertest.Ctl(t, "set_policy", "none", ".*", `{"delayed-retry-type":"disabled"}`)
	for _, id := range []string{"a", "b", "c", "d"} {
		brokertest.Publish(t, brokertest.Channel(t, url), "", sub.plan.Queue, withID(id))
	}
	brokertest.Eventually(t, time.Minute, "the finding", sub.status.bad)
	if all, _ := sub.status.last(); all[0].Property != topology.ArgRetryType || !strings.Contains(all[0].Found, "at once") {
		t.Errorf("findings %v", all)
	}
	paused := func() int { return strings.Count(log.String(), "topology does not fit") }
	brokertest.Eventually(t, time.Minute, "it has tried again, and paused again", func() bool { return paused() == 3 })
	if n := len(app.Requests()); n > 100 {
		t.Errorf("%d attempts for three pauses", n)
	}
	brokertest.Ctl(t, "clear_policy", "none")
	brokertest.Eventually(t, time.Minute, "consuming again", func() bool { return !sub.status.bad() && sub.consumer.Active() })
	before, pauses := len(app.Seen("a")), paused()
	brokertest.Eventually(t, time.Minute, "three more attempts", func() bool { return len(app.Seen("a")) >= before+3 })
	r := app.Seen("a")
	if last := r[before+2].At.Sub(r[before+1].At); last < 300*time.Millisecond || paused() != pauses {
		t.Errorf("back after %v, %d more pauses", last, paused()-pauses)
	}
	var counts []int
	for _, q := range r {
		counts = append(counts, q.Number("Amqp-Retry-Count"))
	}
	if !slices.IsSorted(counts) || counts[len(counts)-1] != len(counts)-1 {
		t.Errorf("retry counts %v", counts)
	}
}
