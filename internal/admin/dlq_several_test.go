package admin

import (
	"net/http"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/admin/dlq"
	"sidecar/internal/brokertest"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// startSeveral is a server over the dead-letter queues of the subscriptions orders, with the messages "o1" and "o2", and
// refunds, with "r1".
func startSeveral(t *testing.T, preset string) (*parking, deadletter.Queues) {
	t.Helper()
	var owners []deadletter.Owner
	var plans []*topology.Plan
	for _, name := range []string{"orders", "refunds"} {
		plans = append(plans, must.Get(topology.Build(topology.Options{Preset: preset, Service: name}))(t))
		owners = append(owners, deadletter.Owner{Name: name, Plan: plans[len(plans)-1]})
	}
	p := declared(t, plans...)
	queues := deadletter.New(deadletter.Options{Broker: brokerOf(p.url), By: "api@test"}, owners...)
	p.running = start(t, func(o *Options) {
		o.DeadLetters = dlq.New(dlq.Options{Queues: queues, Service: "wms", Logger: o.Logger})
	})
	for i, ids := range [][]string{{"o1", "o2"}, {"r1"}} {
		plan := plans[i]
		for _, id := range ids {
			brokertest.Publish(t, p.ch, "", plan.Park.Queue, amqp.Publishing{MessageId: id, Headers: amqp.Table{
				"x-original-queue": plan.Queue, "x-final-reason": "max_retries",
			}})
		}
	}
	if len(queues) == 1 {
		brokertest.WaitReady(t, p.url, queues[0].Name(), 3)
		return p, queues
	}
	brokertest.WaitReady(t, p.url, queues[0].Name(), 2)
	brokertest.WaitReady(t, p.url, queues[1].Name(), 1)
	return p, queues
}

// ids are the message ids of a list, each behind its subscription.
func (p *parking) ids(path string) string {
	p.t.Helper()
	var list struct {
		Messages []struct {
			ID           string `json:"message_id"`
			Subscription string
		}
	}
	p.get(path, &list)
	text := ""
	for _, m := range list.Messages {
		text += m.Subscription + ":" + m.ID + " "
	}
	return strings.TrimSpace(text)
}

// TestSeveralDeadLetterQueues: reads are of all or of one subscription, actions are for one.
func TestSeveralDeadLetterQueues(t *testing.T) {
	t.Parallel()
	for _, preset := range []string{"fanout", "topic-tiers"} { // the latter shares one dead-letter queue
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			p, queues := startSeveral(t, preset)
			shared := len(queues) == 1
			for path, want := range map[string]string{
				"/dlq/messages": "orders:o1 orders:o2 refunds:r1", "/dlq/messages?subscription=refunds": "refunds:r1",
				"/dlq/messages?subscription=orders&id=o2": "orders:o2", "/dlq/messages?subscription=orders&limit=1": "orders:o1",
			} {
				if got := p.ids(path); got != want {
					t.Errorf("%s: %s, want %s", path, got, want)
				}
			}
			if got := p.ids("/dlq/messages?limit=2"); got != map[bool]string{true: "orders:o1 orders:o2", false: "orders:o1 refunds:r1"}[shared] {
				t.Errorf("limit 2: %s", got)
			}
			var state struct {
				Queue string
				Ready int
			}
			if p.get("/dlq", &state); state.Ready != 3 || state.Queue != queues.Name() {
				t.Errorf("%+v", state)
			}
			var list struct {
				Queues []struct{ Name, Service, Queue string }
			}
			p.get("/admin/dlq/queues", &list)
			if len(list.Queues) != 2 || list.Queues[1].Name != queues[len(queues)-1].Name() || list.Queues[1].Service != "wms" ||
				!strings.Contains(list.Queues[1].Queue, "refunds") {
				t.Errorf("%+v", list)
			}
			for _, q := range queues {
				if got := p.ids("/admin/dlq/queues/" + q.Name() + "/messages"); !strings.Contains(got, q.Owners[0].Name+":") {
					t.Errorf("%s: %s", q.Name(), got)
				}
			}

			if all := `{"all":true,"dry_run":true}`; !shared {
				for _, path := range []string{"/dlq/redrive", "/dlq/discard"} {
					p.wantProblem(path, p.post(path, all), http.StatusBadRequest, "one of orders, refunds")
				}
				p.wantProblem("export", p.do(http.MethodGet, p.control, "/dlq/export", nil), http.StatusBadRequest)
			}
			for path, want := range map[string]int{
				"/dlq/messages?subscription=x": http.StatusNotFound, "/dlq/groups?subscription=": http.StatusBadRequest,
				"/dlq?subscription=x": http.StatusNotFound, "/dlq?sub=orders": http.StatusBadRequest,
				"/dlq/export?subscription=orders&subscription=refunds": http.StatusBadRequest,
			} {
				p.wantProblem(path, p.do(http.MethodGet, p.control, path, nil), want)
			}
			p.wantProblem("discard", p.post("/dlq/discard?subscription=x", `{"all":true}`), http.StatusNotFound)
			p.wantProblem("redrive", p.post("/dlq/redrive?sub=orders", `{"all":true}`), http.StatusBadRequest)

			if got := p.do(http.MethodGet, p.control, "/dlq/export?subscription=refunds", nil); strings.Count(got.body, "\n") != 1 {
				t.Errorf("export: %s", got.body)
			}
			name := queues[len(queues)-1].Name()
			now := "/admin/dlq/queues/" + name + "/re-drive?subscription="
			p.wantProblem(now, p.post(now+"x", ""), http.StatusNotFound)
			p.wantProblem(now, p.post(now+"refunds&limit=1", ""), http.StatusBadRequest)
			if got := p.post(now+"refunds", ""); got.StatusCode != http.StatusOK || !strings.Contains(got.body, `"redriven":1`) {
				t.Errorf("%s: %+v", now, got)
			}
			brokertest.Publish(t, p.ch, "", name, amqp.Publishing{Headers: amqp.Table{"x-original-queue": list.Queues[1].Queue}})
			if op := p.run("/dlq/discard?subscription=refunds", `{"all":true,"confirm":"`+name+`"}`, "succeeded", 1); op.Queue != name {
				t.Errorf("%+v", op)
			}
			if op := p.run("/dlq/redrive?subscription=orders", `{"all":true}`, "succeeded", 2); op.Queue != queues[0].Name() {
				t.Errorf("%+v", op)
			}
		})
	}
}
