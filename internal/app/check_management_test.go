package app

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/management"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func managed(t *testing.T, more ...string) *config.Config {
	t.Helper()
	return live(t, append(more, "SIDECAR_MANAGEMENT_URL="+brokertest.Management(t))...)
}

// find returns the finding about an object; a zero one if there is none.
func (r *checkJSON) find(object string) findingJSON {
	i := slices.IndexFunc(r.Findings, func(f findingJSON) bool { return strings.Contains(f.Object, object) })
	if i < 0 {
		return findingJSON{}
	}
	return r.Findings[i]
}

func TestCheckSeesBindings(t *testing.T) {
	t.Parallel()
	plan := declared(t, live(t))
	brokertest.Eventually(t, time.Minute, "bindings and policies are seen, and fit", func() bool {
		out := printed(t, managed(t, "SIDECAR_TOPOLOGY_MODE=verify"))
		return !strings.Contains(out, "note ") && strings.HasSuffix(out, "ok       "+plan.Queue+
			" fits: retried messages wait and return, parked ones go to "+plan.Park.Queue+"\n")
	})
	b := plan.Bindings[1]
	ch := brokertest.Channel(t, brokertest.URL(t))
	must.Do(t, ch.QueueUnbind(b.Queue, b.Key, b.Exchange, nil))
	must.Do(t, ch.QueueBind(b.Queue, "another", b.Exchange, false, nil))

	r, err := checked(t, managed(t, "SIDECAR_TOPOLOGY_MODE=verify"))
	f := r.find("binding of")
	if err == nil || r.Bindings != seen || f.Severity != "problem" || f.Problem != "missing" || f.Found != `key "another"` || f.Fix == "" {
		t.Errorf("%v: %+v", err, r)
	}
	r, err = checked(t, managed(t))
	if f := r.find("binding of"); err != nil || f.Severity != "note" || f.Reason != "sidecar run declares it" || f.Fix != "" {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestCheckSeesTheWayBack: with the bindings seen no warning says that they cannot be.
func TestCheckSeesTheWayBack(t *testing.T) {
	t.Parallel()
	env := []string{"SIDECAR_SERVICE=freeflow-user", "SIDECAR_TOPOLOGY=topic-tiers"}
	declared(t, live(t, env...))
	env = append(env, "SIDECAR_TOPOLOGY_MODE=verify")
	warned := func(r checkJSON) bool { return strings.Contains(strings.Join(r.Warnings, "\n"), "cannot be checked") }
	if r, err := checked(t, live(t, env...)); err != nil || !warned(r) {
		t.Errorf("%v: %+v", err, r)
	}
	if r, err := checked(t, managed(t, env...)); err != nil || warned(r) {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestCheckJudgesPolicies: as if the queues had the arguments that the policies amount to.
func TestCheckJudgesPolicies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind, queue, policy      string
		property, severity, says string
	}{
		{"classic", "dlq", `{"message-ttl": 60000}`, topology.ArgTTL, "problem", "60000"},
		{"classic", "retry-queue", `{"message-ttl": 60000}`, "", "", ""}, // its argument is smaller
		{"classic", "retry-queue", `{"message-ttl": 6}`, topology.ArgTTL, "problem", "do not wait for the delay"},
		{"classic", "retry-queue", `{"max-length": 5, "overflow": "reject-publish"}`, "x-max-length", "warning", "while the queue is full is lost"},
		{"classic", "retry-queue", `{"max-length": 5}`, "x-max-length", "warning", "the oldest message returns before its delay is over"},
		{"quorum", "retry-queue", `{"max-length": 5}`, "x-max-length", "warning", "for minutes, neither ready nor unacked"},
		{"classic", "queue", `{"max-length": 5, "overflow": "reject-publish"}`, "x-max-length", "warning", "a full queue refuses"},
		{"quorum", "queue", `{"overflow": "drop-head"}`, topology.ArgOverflow, "warning", "at most once"},
		{"quorum", "queue", `{"delivery-limit": 20}`, topology.ArgDeliveryLimit, "warning", "or with 425"},
		{"quorum", "queue", `{"delivery-limit": 1}`, topology.ArgDeliveryLimit, "problem", "or with 425"},
	} {
		t.Run(fmt.Sprint(tc.kind, " ", tc.queue, " ", tc.policy), func(t *testing.T) {
			t.Parallel()
			brokertest.URL(t)
			name := "demo." + tc.queue + ".orders"
			brokertest.Ctl(t, "set_policy", "the policy", "^demo[.]"+tc.queue+"[.]", tc.policy)
			env := []string{"SIDECAR_QUEUE_TYPE=" + tc.kind, "SIDECAR_DLQ=demo.dlq.orders", "SIDECAR_QUEUE=demo.queue.orders", "SIDECAR_RETRY_QUEUE=demo.retry-queue.orders"}
			declared(t, live(t, env...))
			var r checkJSON
			brokertest.Eventually(t, time.Minute, "the policies are seen", func() bool {
				r, _ = checked(t, managed(t, env...))
				return r.Policies == seen
			})
			i := slices.IndexFunc(r.Findings, func(f findingJSON) bool {
				return f.Object == fmt.Sprintf("queue %q", name) && f.Property == tc.property
			})
			if tc.property == "" {
				if len(r.Findings) > 0 {
					t.Errorf("%+v", r.Findings)
				}
				return
			}
			if i < 0 {
				t.Fatalf("no finding: %+v", r)
			}
			f := r.Findings[i]
			if f.Severity != tc.severity || !strings.Contains(f.Reason, tc.says) || !strings.HasSuffix(f.Found, `, by policy "the policy"`) || f.Fix != `change policy "the policy"` {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestCheckWithAPolicyThatHelps: what a queue lacks by its arguments it may have by a policy.
func TestCheckWithAPolicyThatHelps(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	brokertest.Ctl(t, "set_policy", "p", "^q$", `{"overflow": "reject-publish"}`)
	brokertest.Queue(t, url, "q", amqp.Table{
		"x-queue-type": "quorum", "x-max-length": int64(1000), "x-delivery-limit": topology.NoDeliveryLimit,
	})
	env := []string{"SIDECAR_QUEUE=q", "SIDECAR_QUEUE_TYPE=quorum"}
	declared(t, live(t, env...))
	if r, _ := checked(t, live(t, env...)); r.find(`queue "q"`).Severity == "" {
		t.Fatalf("the queue has no finding over AMQP: %+v", r)
	}
	brokertest.Eventually(t, time.Minute, "the limit is harmless", func() bool {
		r, _ := checked(t, managed(t, env...))
		return r.Policies == seen && !slices.ContainsFunc(r.Findings, func(f findingJSON) bool { return f.Severity != "note" })
	})
}

// TestCheckOfAQueueThatDelays: what is in effect counts, be it by argument or by policy.
func TestCheckOfAQueueThatDelays(t *testing.T) {
	t.Parallel()
	delays := func(kind string, shortest int) string {
		return fmt.Sprintf(`{"delayed-retry-type": %q, "delayed-retry-min": %d, "delayed-retry-max": 5000}`, kind, shortest)
	}
	bare := amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(200)}
	for name, tc := range map[string]struct {
		preset, policy           string
		given                    amqp.Table // nil: as declared
		property, severity, says string
	}{
		"by policy alone":         {"native", delays("failed", 5000), bare, "", "", ""},
		"longer by policy":        {"native", delays("failed", 5000), amqp.Table{"x-queue-type": "quorum", "x-delayed-retry-type": "failed", "x-delayed-retry-min": int64(900), "x-delayed-retry-max": int64(900)}, topology.ArgRetryMin, "note", "beside it"},
		"shorter by policy":       {"native", delays("failed", 500), nil, topology.ArgRetryMin, "note", "retries wait that long"},
		"no delay by policy":      {"native", delays("disabled", 500), nil, topology.ArgRetryType, "problem", "delivered again at once"},
		"everything by policy":    {"native", delays("all", 5000), nil, topology.ArgRetryType, "warning", "waits in the broker, too"},
		"everything, with fanout": {"fanout", delays("all", 5000), nil, topology.ArgRetryType, "warning", "waits in the broker once more"},
		"returns, with fanout":    {"fanout", delays("returned", 5000), nil, topology.ArgRetryType, "warning", "waits in the broker once more"},
		"failures, with fanout":   {"fanout", delays("failed", 5000), nil, topology.ArgRetryType, "note", "a lost connection"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokertest.Delaying(t)
			url := brokertest.URL(t)
			brokertest.Ctl(t, "set_policy", "the policy", "^q$", tc.policy)
			env := []string{"SIDECAR_QUEUE=q", "SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_TOPOLOGY=" + tc.preset}
			if tc.given != nil {
				brokertest.Queue(t, url, "q", tc.given)
			}
			declared(t, live(t, env...))
			if r, _ := checked(t, live(t, env...)); tc.given != nil && r.find(`queue "q"`).Severity == "" {
				t.Fatalf("the queue has no finding over AMQP: %+v", r)
			}
			r, err := checked(t, managed(t, env...))
			i := slices.IndexFunc(r.Findings, func(f findingJSON) bool { return strings.HasPrefix(f.Property, "x-delayed-retry-") })
			if tc.property == "" {
				if i >= 0 {
					t.Errorf("%+v", r.Findings)
				}
				return
			}
			if i < 0 {
				t.Fatalf("no finding: %+v", r)
			}
			i = slices.IndexFunc(r.Findings, func(f findingJSON) bool { return f.Property == tc.property })
			f := r.Findings[i]
			byPolicy := strings.HasSuffix(f.Found, `, by policy "the policy"`)
			if f.Severity != tc.severity || !strings.Contains(f.Reason, tc.says) || byPolicy != (tc.says != "beside it") || (err != nil) != (tc.severity == "problem") {
				t.Errorf("%+v, %v", f, err)
			}
		})
	}
}

// TestCheckCountsWhatTheQueueDelays: over AMQP the queue is empty.
func TestCheckCountsWhatTheQueueDelays(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	url := brokertest.URL(t)
	env := []string{"SIDECAR_QUEUE=q", "SIDECAR_TOPOLOGY=native", "SIDECAR_RETRY_DELAY=1h"}
	declared(t, live(t, env...))
	ch := brokertest.Channel(t, url)
	brokertest.Publish(t, ch, "", "q", amqp.Publishing{})
	d, ok, err := ch.Get("q", false)
	if !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	must.Do(t, d.Reject(true))
	brokertest.Eventually(t, time.Minute, "the message is counted", func() bool {
		var b bytes.Buffer
		must.Do(t, Check(t.Context(), managed(t, env...), &b, false, plain))
		return strings.Contains(b.String(), "messages that wait in q for a retry: 1\n")
	})
}

// TestCheckWithoutStatistics: up to RabbitMQ 4.2 the policies of a queue are in its statistics.
func TestCheckWithoutStatistics(t *testing.T) {
	t.Parallel()
	plan := must.Get(newPlan(load(t)))(t)
	r := CheckResult{Bindings: seen, Policies: notSeen, Fits: true}
	r.conclude(load(t), plan)
	if !strings.HasSuffix(r.ok, "; policies not seen") || len(r.notes) != 1 || !strings.Contains(r.notes[0], "statistics") {
		t.Errorf("%q, %q", r.ok, r.notes)
	}
}

func TestCheckFindsLeftovers(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	plan := declared(t, live(t))
	brokertest.Queue(t, url, "old queue's", amqp.Table{topology.ArgTTL: int64(1000), topology.ArgDLX: "", topology.ArgDLKey: plan.Queue})
	r, err := checked(t, managed(t))
	f := r.find("old queue's")
	command := "rabbitmqctl delete_queue -p " + brokertest.VhostName(t) + ` 'old queue'\''s' --if-empty --if-unused`
	if err != nil || f.Severity != "note" || f.Problem != "leftover" || f.Found != "0 messages" || !strings.HasSuffix(f.Fix, command) {
		t.Errorf("%v: %+v, want the command %s", err, r, command)
	}
}

// TestLeftoverIsCountedNow: the API counts what is in a quorum queue some seconds late, and the advice is to delete the
// queue with its messages.
func TestLeftoverIsCountedNow(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	env := []string{"SIDECAR_QUEUE_TYPE=quorum"}
	plan := declared(t, live(t, env...))
	brokertest.Queue(t, url, "leftover", amqp.Table{topology.ArgType: "quorum", topology.ArgTTL: int64(3600_000), topology.ArgDLX: "", topology.ArgDLKey: plan.Queue})
	for n := 1; n <= 3; n++ {
		brokertest.Send(t, url, "leftover", "a message")
		r, err := checked(t, managed(t, env...))
		f := r.find("leftover")
		if err != nil || f.Found != fmt.Sprintf("%d messages", n) || strings.Contains(f.Fix, "delete_queue") || !strings.Contains(f.Fix, "leave it") {
			t.Errorf("%v: %+v", err, f)
		}
	}
}

func TestCheckSaysHowManyQueuesItHasNotRead(t *testing.T) {
	t.Parallel()
	all := leftovers(&management.Seen{Unread: 3}, "v")
	if len(all) != 1 || all[0].Judgement != topology.Harmless || all[0].Object != `virtual host "v"` || all[0].Found != "3 more queues" {
		t.Errorf("%+v", all)
	}
}

// TestCheckCannotReadTheAPI: that is an error and no finding, and nothing is on standard output for a script.
func TestCheckCannotReadTheAPI(t *testing.T) {
	t.Parallel()
	u := must.Get(url.Parse(brokertest.Management(t)))(t)
	u.User = url.UserPassword("guest", "canary-0f9e")
	cfg := live(t, "SIDECAR_MANAGEMENT_URL="+u.String())
	var out bytes.Buffer
	err := Check(t.Context(), cfg, &out, true, plain)
	if err == nil || errors.Is(err, errFindings) || !strings.Contains(err.Error(), "management API") || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
	if out.Len() > 0 {
		t.Errorf("printed %s", out.String())
	}
	file := filepath.Join(t.TempDir(), "url")
	must.Do(t, os.WriteFile(file, []byte(brokertest.Management(t)), 0o600))
	cfg = live(t, "SIDECAR_MANAGEMENT_URL_FILE="+file)
	must.Do(t, os.Remove(file))
	if err := Check(t.Context(), cfg, &out, false, plain); err == nil || !strings.Contains(err.Error(), "SIDECAR_MANAGEMENT_URL_FILE") {
		t.Errorf("%v", err)
	}
	ca := brokertest.NewAuthority(t).CAFile()
	cfg = live(t, "SIDECAR_MANAGEMENT_URL=https://127.0.0.1:1", "SIDECAR_AMQP_TLS_CA_FILE="+ca)
	must.Do(t, os.Remove(ca))
	if err := Check(t.Context(), cfg, &out, false, plain); err == nil || !strings.Contains(err.Error(), "management API: read the CA file") {
		t.Errorf("%v", err)
	}
}

// TestCheckSeesThatNothingDelays: a queue that fanout has declared needs a policy before native.
func TestCheckSeesThatNothingDelays(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	env := []string{"SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_RETRY_DELAY=1s"}
	plan := declared(t, live(t, env...))
	native := func() checkJSON {
		r, _ := checked(t, managed(t, append(env, "SIDECAR_TOPOLOGY=native")...))
		return r
	}
	properties := func(r checkJSON) (all []string) {
		for _, f := range r.Findings {
			all = append(all, f.Severity+" "+f.Problem+" "+f.Property)
		}
		return all
	}
	leftover := "note leftover "
	unending := "warning drift " + topology.ArgDeliveryLimit
	r := native()
	if got, want := properties(r), []string{"problem drift " + topology.ArgRetryType, unending, leftover}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if f := r.find(plan.Waits[0].Queue); strings.Contains(f.Fix, "--if") || !strings.Contains(f.Fix, "delete_queue -p ") {
		t.Errorf("%+v", f)
	}
	brokertest.Ctl(t, "set_policy", "delays", "^"+regexp.QuoteMeta(plan.Queue)+"$", `{"delayed-retry-type":"failed","delayed-retry-min":1000,"delayed-retry-max":1000}`)
	brokertest.Eventually(t, time.Minute, "the policy is seen", func() bool {
		return slices.Equal(properties(native()), []string{unending, leftover})
	})
}
