package admin

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/admin/dlq"
	"sidecar/internal/brokertest"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// startSeveral is a server over the dead-letter queues of the subscriptions orders, with the messages "o1" and "o2", and
// refunds, with "r1".
func startSeveral(t *testing.T) (*parking, deadletter.Queues) {
	t.Helper()
	var owners []deadletter.Owner
	var plans []*topology.Plan
	for _, name := range []string{"orders", "refunds"} {
		plans = append(plans, must.Get(topology.Build(topology.Options{Preset: topology.PresetFanout, Service: name}))(t))
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

// TestSeveralDeadLetterQueues: reads are of all or of one subscription, actions are for one. Package deadletter has queues
// that subscriptions share.
func TestSeveralDeadLetterQueues(t *testing.T) {
	t.Parallel()
	p, queues := startSeveral(t)
	for path, want := range map[string]string{
		"/dlq/messages": "orders:o1 orders:o2 refunds:r1", "/dlq/messages?limit=2": "orders:o1 refunds:r1", "/dlq/messages?subscription=refunds": "refunds:r1",
		"/dlq/messages?subscription=orders&id=o2": "orders:o2", "/dlq/messages?subscription=orders&limit=1": "orders:o1",
		"/admin/dlq/queues/" + queues[1].Name() + "/messages": "refunds:r1",
	} {
		if got := p.ids(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
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
	if len(list.Queues) != 2 || list.Queues[1].Name != queues[1].Name() || list.Queues[1].Service != "wms" ||
		!strings.Contains(list.Queues[1].Queue, "refunds") {
		t.Errorf("%+v", list)
	}
	for _, path := range []string{"/dlq/redrive", "/dlq/discard"} {
		p.wantProblem(path, p.post(path, `{"all":true,"dry_run":true}`), http.StatusBadRequest, "one of orders, refunds")
	}
	for path, want := range map[string]int{
		"/dlq/messages?subscription=x": http.StatusNotFound, "/dlq/groups?subscription=": http.StatusBadRequest,
		"/dlq?subscription=x": http.StatusNotFound, "/dlq?sub=orders": http.StatusBadRequest,
		"/dlq/export?subscription=orders&subscription=refunds": http.StatusBadRequest, "/dlq/export": http.StatusBadRequest,
	} {
		p.wantProblem(path, p.do(http.MethodGet, p.control, path, nil), want)
	}
	p.wantProblem("discard", p.post("/dlq/discard?subscription=x", `{"all":true}`), http.StatusNotFound)
	p.wantProblem("redrive", p.post("/dlq/redrive?sub=orders", `{"all":true}`), http.StatusBadRequest)
	if got := p.do(http.MethodGet, p.control, "/dlq/export?subscription=refunds", nil); strings.Count(got.body, "\n") != 1 {
		t.Errorf("export: %s", got.body)
	}
	name := queues[1].Name()
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
}

// TestExport: the answer is what the command writes to a file, and only the write token gets it.
func TestExport(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, withTokens)
	export := func(query, bearer string) reply {
		return p.do(http.MethodGet, p.control, "/dlq/export"+query, authorized("Bearer "+bearer))
	}
	got := export("", token)
	if got.StatusCode != http.StatusOK || got.body != "" || got.Header.Get("Content-Type") != "application/jsonl" {
		t.Errorf("of an empty queue: %d %v %q", got.StatusCode, got.Header, got.body)
	}
	p.parkThree()
	p.park("d\u202e", 503, "the last")
	brokertest.WaitReady(t, p.url, p.dlq(), 4)
	q := deadletter.New(deadletter.Options{Broker: brokerOf(p.url)}, deadletter.Owner{Plan: p.plan})[0]
	var noJSON, none deadletter.Filter
	must.Do(t, errors.Join(noJSON.Set("text", "no json"), none.Set("id", "none")))
	for query, s := range map[string]deadletter.Selection{
		"": {}, "?limit=2": {Limit: 2}, "?limit=1000000&text=NO+JSON": {Filter: noJSON}, "?status=503&status=404": {}, "?id=none": {Limit: 1, Filter: none},
	} {
		var want bytes.Buffer
		must.Get(q.Export(t.Context(), &want, s, nil))(t)
		got := export(query, token)
		if got.StatusCode != http.StatusOK || got.body != want.String() || strings.Contains(got.body, "\u202e") {
			t.Errorf("%s: %d %s, want %s", query, got.StatusCode, got.body, &want)
		}
		if name := got.Header.Get("Content-Disposition"); name != `attachment; filename=`+p.dlq()+`.jsonl` {
			t.Errorf("Content-Disposition %q", name)
		}
	}
	p.wantLogged(6, `"msg":"control","action":"show bodies","peer":"127.0.0.1:`, `"scope":"write","status":200,"message":"export"}`)

	p.wantProblem("with the read token", export("", readToken), http.StatusForbidden, "no message bodies")
	for _, query := range []string{"?limit=0", "?limit=1000001", "?scan=1", "?body=true", "?status=x", "?colour=red"} {
		p.wantProblem(query, export(query, token), http.StatusBadRequest)
	}
	old := p.raw(p.control, "GET /dlq/export HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+token+"\r\n\r\n")
	p.wantProblem("HTTP/1.0", old, http.StatusBadRequest, "needs HTTP/1.1")
}

// TestExportThatBreaks: a client sees that the messages it has received are not all.
func TestExportThatBreaks(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	for range 24 { // more than the buffers of a connection hold
		p.park("large", 503, strings.Repeat("x", 1<<20))
	}
	brokertest.WaitReady(t, p.url, p.dlq(), 24)
	proxy := brokertest.NewProxy(t, p.url)
	r := start(t, func(o *Options) { o.DeadLetters = queueOf(t, o.Logger, p.plan, proxy.URL(t, p.url)) })
	got := must.Get(http.Get("http://" + r.control + "/dlq/export"))(t)
	defer got.Body.Close() //nolint:errcheck // it was only read
	proxy.Refuse()
	file, err := io.ReadAll(got.Body)
	if got.StatusCode != http.StatusOK || len(file) == 0 || err == nil {
		t.Errorf("%d: %d bytes, %v", got.StatusCode, len(file), err)
	}
	brokertest.Eventually(t, time.Minute, "the log line", func() bool {
		return strings.Contains(r.log.String(), `"message":"export"`)
	})
	r.wantLogged(1, `"status":200,"message":"export","error":"`)
	if log := r.log.String(); strings.Contains(log, "panic") {
		t.Errorf("log: %s", log)
	}
	proxy.Restore(t)
	brokertest.WaitReady(t, p.url, p.dlq(), 24)
}
