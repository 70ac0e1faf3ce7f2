package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
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
	"sidecar/internal/topology/declare"
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

// policyCase is a queue with a policy, and the finding about it.
type policyCase struct {
	queue                    string
	settings, given          management.Table // given: the arguments; nil: those of the plan
	property, severity, says string
	env                      []string
}

const classic, quorum, native, fanout = "SIDECAR_QUEUE_TYPE=classic", "SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_TOPOLOGY=native", "SIDECAR_TOPOLOGY=fanout"

func policyCases() map[string]policyCase {
	delays := func(kind string, shortest int) management.Table {
		return management.Table{"delayed-retry-type": kind, "delayed-retry-min": int64(shortest), "delayed-retry-max": int64(5000)}
	}
	bare := management.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(200)}
	shorter := management.Table{"x-queue-type": "quorum", "x-delayed-retry-type": "failed", "x-delayed-retry-min": int64(900), "x-delayed-retry-max": int64(900)}
	return map[string]policyCase{
		"parked messages expire":    {"dlq", management.Table{"message-ttl": int64(60000)}, nil, topology.ArgTTL, "problem", "60000", []string{classic}},
		"a longer delay":            {"retry", management.Table{"message-ttl": int64(60000)}, nil, "", "", "", []string{classic}}, // the argument is smaller
		"a shorter delay":           {"retry", management.Table{"message-ttl": int64(6)}, nil, topology.ArgTTL, "problem", "do not wait for the delay", []string{classic}},
		"retries are refused":       {"retry", management.Table{"max-length": int64(5), "overflow": "reject-publish"}, nil, "x-max-length", "warning", "while the queue is full is lost", []string{classic}},
		"retries make room":         {"retry", management.Table{"max-length": int64(5)}, nil, "x-max-length", "warning", "from a retry queue it returns before its delay is over", []string{classic}},
		"retries wait for room":     {"retry", management.Table{"max-length": int64(5)}, nil, "x-max-length", "warning", "for minutes, neither ready nor unacked", []string{quorum}},
		"a full queue":              {"q", management.Table{"max-length": int64(5), "overflow": "reject-publish"}, nil, "x-max-length", "warning", "a full queue refuses", []string{classic}},
		"rejected at most once":     {"q", management.Table{"overflow": "drop-head"}, nil, topology.ArgOverflow, "warning", "at most once", []string{quorum}},
		"a limit of deliveries":     {"q", management.Table{"delivery-limit": int64(20)}, nil, topology.ArgDeliveryLimit, "warning", "or with 425", []string{quorum}},
		"a low limit of deliveries": {"q", management.Table{"delivery-limit": int64(1)}, nil, topology.ArgDeliveryLimit, "problem", "or with 425", []string{quorum}},
		"delays by policy alone":    {"q", delays("failed", 5000), bare, "", "", "", []string{quorum, native}},
		"no policy delays":          {"q", management.Table{}, bare, topology.ArgRetryType, "problem", "no policy delays them", []string{quorum, native}},
		"longer by policy":          {"q", delays("failed", 5000), shorter, topology.ArgRetryMin, "note", "do not depend on it", []string{quorum, native}},
		"shorter by policy":         {"q", delays("failed", 500), nil, topology.ArgRetryMin, "note", "retries wait that long", []string{quorum, native}},
		"no delay by policy":        {"q", delays("disabled", 500), nil, topology.ArgRetryType, "problem", "delivered again at once", []string{quorum, native}},
		"everything by policy":      {"q", delays("all", 5000), nil, topology.ArgRetryType, "warning", "waits in the broker, too", []string{quorum, native}},
		"everything, with fanout":   {"q", delays("all", 5000), nil, topology.ArgRetryType, "warning", "waits in the broker, too", []string{quorum, fanout}},
		"failures, with fanout":     {"q", delays("failed", 5000), nil, topology.ArgRetryType, "note", "do not depend on it", []string{quorum, fanout}},
	}
}

// TestCheckJudgesPolicies: as if the queues had the arguments that the policies amount to. What the API says of a policy
// is read in TestCheckWithAPolicyThatHelps, and merged as the broker does it in management TestBrokerMergesLikeEffective.
func TestCheckJudgesPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range policyCases() {
		env := append(c.env, "SIDECAR_QUEUE=q", "SIDECAR_DLQ=dlq")
		if !slices.Contains(env, native) {
			env = append(env, "SIDECAR_RETRY_QUEUE=retry")
		}
		plan := must.Get(newPlan(load(t, env...)))(t)
		own := plan.Queues[slices.IndexFunc(plan.Queues, func(q topology.Queue) bool { return q.Name == c.queue })]
		queue := management.Queue{Type: topology.TypeClassic, Durable: true, Arguments: management.Table(own.Args), Settings: c.settings, Policy: "the policy"}
		if c.given != nil {
			queue.Arguments = c.given
		}
		if c.env[0] == quorum {
			queue.Type = topology.TypeQuorum
		}
		findings := withPolicies(&management.Seen{Queues: map[string]management.Queue{c.queue: queue}}, plan, 4, nil)
		i := slices.IndexFunc(findings, func(f declare.Finding) bool { return f.Property == c.property })
		if c.property == "" {
			if slices.ContainsFunc(findings, func(f declare.Finding) bool {
				return strings.Contains(f.Property, "-delayed-") || f.Property == topology.ArgTTL
			}) {
				t.Errorf("%s: %v", name, findings)
			}
			continue
		}
		if i < 0 {
			t.Errorf("%s: %v", name, findings)
			continue
		}
		f, byPolicy := findings[i], name != "longer by policy" && len(c.settings) > 0
		if !strings.Contains(string(must.Get(json.Marshal(f))(t)), `"severity":"`+c.severity+`"`) || !strings.Contains(f.String(), c.says) ||
			strings.HasSuffix(f.Found, `, by policy "the policy"`) != byPolicy || (f.Fix == `change policy "the policy"`) != (byPolicy && c.severity != "note") {
			t.Errorf("%s: %+v", name, f)
		}
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
		return strings.Contains(printed(t, managed(t, env...)), "messages that wait in q for a retry: 1\n")
	})
}

// TestCheckFindsLeftovers: the advice is to delete an empty queue, and to leave one that may have messages. They are counted
// over AMQP: the API counts what is in a quorum queue some seconds late.
func TestCheckFindsLeftovers(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	plan := declared(t, live(t))
	brokertest.Queue(t, url, "old queue's", amqp.Table{topology.ArgTTL: int64(1000), topology.ArgDLX: "", topology.ArgDLKey: plan.Queue})
	brokertest.Queue(t, url, "leftover", amqp.Table{topology.ArgType: "quorum", topology.ArgTTL: int64(3600_000), topology.ArgDLX: "", topology.ArgDLKey: plan.Queue})
	command := "rabbitmqctl delete_queue -p " + brokertest.VhostName(t) + ` 'old queue'\''s' --if-empty --if-unused`
	for n := 1; n <= 2; n++ {
		brokertest.Send(t, url, "leftover", "a message")
		r, err := checked(t, managed(t))
		empty, full := r.find("old queue's"), r.find("leftover")
		if err != nil || empty.Severity != "note" || empty.Problem != "leftover" || empty.Found != "0 messages" || !strings.HasSuffix(empty.Fix, command) {
			t.Errorf("%v: %+v, want the command %s", err, empty, command)
		}
		if full.Found != fmt.Sprintf("%d messages", n) || strings.Contains(full.Fix, "delete_queue") || !strings.Contains(full.Fix, "leave it") {
			t.Errorf("with %d messages: %+v", n, full)
		}
	}
}

// TestCheckCannotReadTheAPI: that is an error and no finding, and nothing is on standard output for a script.
func TestCheckCannotReadTheAPI(t *testing.T) {
	t.Parallel()
	u := must.Get(url.Parse(brokertest.Management(t)))(t)
	u.User = url.UserPassword("guest", "canary-0f9e")
	file, ca := filepath.Join(t.TempDir(), "url"), brokertest.NewAuthority(t).CAFile()
	must.Do(t, os.WriteFile(file, []byte(brokertest.Management(t)), 0o600))
	cases := map[string]*config.Config{
		"management API":                   live(t, "SIDECAR_MANAGEMENT_URL="+u.String()),
		"SIDECAR_MANAGEMENT_URL_FILE":      live(t, "SIDECAR_MANAGEMENT_URL_FILE="+file),
		"management API: read the CA file": live(t, "SIDECAR_MANAGEMENT_URL=https://127.0.0.1:1", "SIDECAR_AMQP_TLS_CA_FILE="+ca),
	}
	must.Do(t, os.Remove(file))
	must.Do(t, os.Remove(ca))
	for says, cfg := range cases {
		var out bytes.Buffer
		err := Check(t.Context(), cfg, &out, true, plain)
		if err == nil || errors.Is(err, errFindings) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "canary") || out.Len() > 0 {
			t.Errorf("%v, want %s; printed %s", err, says, &out)
		}
	}
}
