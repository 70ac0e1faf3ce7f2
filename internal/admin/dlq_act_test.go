package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/admin/dlq"
	"sidecar/internal/brokertest"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func TestRedrive(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	p.parkThree()
	p.get("/dlq/operations", nil)

	op := p.run("/dlq/redrive", `{"all":true,"dry_run":true}`, "succeeded", 0)
	if !op.DryRun || op.Progress.Matched != 3 {
		t.Errorf("%+v", op)
	}
	op = p.run("/dlq/redrive", `{"filter":{"status":["503"]},"limit":1,"rate":"100/s","reset":true}`, "succeeded", 1)
	if op.Kind != "redrive" || op.Ended.IsZero() || !strings.HasPrefix(op.By, "127.0.0.1:") {
		t.Errorf("%+v", op)
	}
	op = p.run("/dlq/redrive", `{"filter":{"status":"503"}}`, "succeeded", 1)
	if brokertest.Ready(t, p.url, p.dlq()) != 1 || brokertest.Ready(t, p.url, p.plan.Queue) != 2 {
		t.Errorf("%+v", op)
	}
	d := brokertest.Get(t, p.url, p.plan.Queue, time.Minute)
	if d.MessageId != "a" || d.Headers["x-redriven-by"] != "api@test" {
		t.Errorf("%s %v", d.MessageId, d.Headers)
	}
	var all struct{ Operations []dlq.Operation }
	if p.get("/dlq/operations", &all); len(all.Operations) != 3 || all.Operations[0].ID != op.ID || !all.Operations[2].DryRun {
		t.Errorf("%+v", all)
	}
	brokertest.Queue(t, p.url, "audit", nil)
	to := p.run("/dlq/redrive", `{"filter":{"text":"NO JSON"},"to":"audit"}`, "succeeded", 1)
	if id := brokertest.Get(t, p.url, "audit", time.Minute).MessageId; id != "b" {
		t.Errorf("%s was moved: %+v", id, to)
	}
	if request, _ := to.Request.(map[string]any); request["filter"] == nil || request["to"] != "audit" {
		t.Errorf("request %v", to.Request)
	}
	p.wantLogged(1, `"msg":"control","action":"redrive","peer":"127.0.0.1:`, `"scope":"write","status":202`, op.ID)
	p.wantLogged(1, `"msg":"control operation ended","action":"redrive"`, op.ID, `"state":"succeeded"`, `"done":1`)
}

func TestDiscardAndPurge(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	p.parkThree()
	for _, body := range []string{
		`{"all":true}`, `{"all":true,"confirm":""}`, `{"all":true,"confirm":"` + p.plan.Queue + `"}`,
		`{"confirm":"` + p.dlq() + `"}`, `{"all":true,"dry_run":false}`,
	} {
		p.wantProblem(body, p.post("/dlq/discard", body), http.StatusBadRequest)
	}
	if op := p.run("/dlq/discard", `{"filter":{"status":"404"},"dry_run":true}`, "succeeded", 0); op.Progress.Matched != 1 || !op.DryRun {
		t.Errorf("%+v", op)
	}
	p.run("/dlq/discard", `{"filter":{"status":"404"},"confirm":"`+p.dlq()+`"}`, "succeeded", 1)
	var list page
	if p.get("/dlq/messages", &list); list.ids() != "a c" {
		t.Errorf("left: %s", list.ids())
	}
	if op := p.run("/dlq/discard", `{"all":true,"confirm":"`+p.dlq()+`"}`, "succeeded", 2); op.Kind != "discard" || op.DryRun {
		t.Errorf("%+v", op)
	}
	if p.get("/dlq/messages", &list); len(list.Messages) != 0 {
		t.Errorf("left: %s", list.ids())
	}
	p.wantLogged(5, `"msg":"control","action":"discard"`, `"status":400`)
}

func TestBadActions(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.DeadLetters = away(t, o.Logger) })
	for _, body := range []string{
		"", "{}", "null", "[]", "1", `"x"`, `{"all":false}`, `{"filter":{}}`, `{"filter":{"status":[]}}`, `{"all":true,"filter":{"status":"503"}}`, `{"filter":null}`,
		`{"all":null}`, `{"filter":{"status":null}}`, `{"all":"true"}`, `{"all":1}`, `{"all":true,"limit":-1}`, `{"all":true,"limit":1e9}`, `{"all":true,"limit":1000001}`,
		`{"all":true,"limit":1.5}`, `{"all":true,"limit":1.0}`, `{"all":true,"limit":NaN}`, `{"all":true,"limit":Infinity}`, `{"all":true,"limit":"10"}`, `{"all":true,"limit":"x"}`,
		`{"all":true,"limit":99999999999999999999}`, `{"all":true,"limit":[1]}`, `{"all":true,"limit":01}`, `{"all":true,"limit":1,"limit":2}`, `{"all":true,"scan":1}`, `{"all":true,"limit":1,"LIMIT":2}`,
		`{"ALL":true}`, `{"all":true,"\u0061ll":true}`, `{"all":true,"ſcan":1}`, `{"filter":{"status":"503"},"filter":{"status":"404"}}`, `{"filter":{"status":"503","status":"404"}}`,
		`{"all":true,"canary":-1}`, `{"all":true,"canary":1001}`, `{"all":true,"canary":"3"}`, `{"all":true,"rate":20}`, `{"all":true,"rate":"20/x"}`, `{"all":true,"rate":"-1/s"}`,
		`{"all":true,"rate":"NaN"}`, `{"all":true,"rate":"Inf/s"}`, `{"all":true,"rate":"0"}`, `{"all":true,"reset":"yes"}`, `{"all":true,"dry_run":1}`, `{"all":true,"confirm":"x"}`, `{"all":true,"to":""}`,
		`{"all":true,"to":"q","canary":1}`, `{"all":true,"to":"wms.queue.wms-a"}`, `{"all":true,"to":["q"]}`,
		`{"filter":{"statuz":"503"}}`, `{"filter":{"status":503}}`, `{"filter":{"status":[503]}}`, `{"filter":{"status":"abc"}}`, `{"filter":{"older":"1"}}`, `{"filter":{"older":["1h","2h"]}}`,
		`{"filter":{"error":["a","b"]}}`, `{"filter":{"routing_key":"x"}}`, `{"filter":"status=503"}`, `{"filter":[]}`, `{"filter":{"header":"=x"}}`, `{"filter":{"id":""}}`,
		`{"filter":{"id":[` + strings.Repeat(`"x",`, 1000) + `"x"]}}`, `{"all":true}x`, `{"all":true}{"all":true}`, `{"all":true}}`, `{"all":true,}`, `{"all":true`, `{all:true}`, "{'all':true}",
		"\ufeff" + `{"all":true}`, "\xff\xfe{\x00}\x00", "{\x00\"\x00", `{"all":true,"filter":{"id":"` + "\xff" + `"}}`, `{"filter":{"id":{"a":{}}}}`, strings.Repeat(`{"filter":`, 10000),
		strings.Repeat("[", 100000), `{"filter":` + strings.Repeat("[", 17) + strings.Repeat("]", 17) + "}", `{"all":tru` + "e\x00}", `{"all":true}` + "\f", strings.Repeat(" ", 1<<20),
	} {
		for _, path := range []string{"/dlq/redrive", "/dlq/discard"} {
			got := r.post(path, body)
			r.wantProblem(path+" "+body[:min(len(body), 60)], got, http.StatusBadRequest, `"detail":"invalid: `)
			if strings.Count(got.body, "invalid: ") > 1 || strings.Contains(got.body, ` -"`) {
				t.Errorf("%s %.60s: the detail says a thing twice, or names no field: %s", path, body, got.body)
			}
		}
	}
	large := r.raw(r.control, "POST /dlq/redrive HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1048577\r\n\r\n{}")
	r.wantProblem("large", large, http.StatusRequestEntityTooLarge)
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		for _, path := range []string{"/dlq/redrive", "/dlq/discard", "/admin/dlq/queues/wms.dlq.wms-a/re-drive", "/dlq/operations/0123456789abcdef/cancel"} {
			got := r.do(http.MethodPost, r.control, path, func(q *http.Request) {
				setBody(q, `{"all":true}`)
				q.Header.Set("Content-Type", ct)
			})
			r.wantProblem(path+" "+ct, got, http.StatusUnsupportedMediaType)
		}
	}
	r.wantProblem("cancel", r.post("/dlq/operations/0123456789abcdef/cancel", `{"x":1}`), http.StatusBadRequest)
	if list, _ := r.o.DeadLetters.Since(0); len(list) != 0 {
		t.Errorf("%d operations have begun", len(list))
	}
}

// TestOneOperationAtATime: the second is refused at once, whatever it is and wherever it comes from, and so are reads.
func TestOneOperationAtATime(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	p.parkMany(5)
	op := p.begin("/dlq/redrive", `{"all":true,"canary":2}`) // there is no consumer, so no verdict comes
	brokertest.Eventually(t, time.Minute, "two were sent ahead", func() bool {
		p.get("/dlq/operations/"+op.ID, &op)
		return op.Progress.Canary.Sent == 2
	})
	queue := "/admin/dlq/queues/" + p.dlq()
	for path, body := range map[string]string{
		"/dlq/redrive": `{"all":true}`, "/dlq/discard": `{"all":true,"dry_run":true}`, queue + "/re-drive": `{"limit":10}`,
	} {
		p.wantProblem(path, p.post(path, body), http.StatusConflict, "redrive "+op.ID+" runs")
	}
	for _, path := range []string{"/dlq/messages", "/dlq/groups", "/dlq/messages/0123456789abcdef", queue + "/messages", "/dlq/export"} {
		p.wantProblem(path, p.do(http.MethodGet, p.control, path, nil), http.StatusConflict, "redrive "+op.ID+" runs")
	}
	p.wantLogged(1, `"status":409,"message":"export"}`)
	var state struct{ Operation *dlq.Operation }
	if p.get("/dlq", &state); state.Operation == nil || state.Operation.ID != op.ID {
		t.Errorf("%+v", state)
	}
	o := start(t, func(o *Options) { o.DeadLetters = queueOf(t, o.Logger, p.plan, p.url) }) // another process
	o.wantProblem("elsewhere", o.post("/dlq/redrive", `{"all":true}`), http.StatusConflict)

	got := p.post("/dlq/operations/"+op.ID+"/cancel", "")
	p.decode("cancel", got, http.StatusAccepted, &op)
	op = p.ended(op.ID)
	if p.wantEnd(op, "cancelled", 2); op.Error != "cancelled" || brokertest.Ready(t, p.url, p.plan.Queue) != 2 {
		t.Errorf("%+v", op)
	}
	brokertest.WaitReady(t, p.url, p.dlq(), 3)
	if again := p.post("/dlq/operations/"+op.ID+"/cancel", "{}"); again.StatusCode != http.StatusAccepted || p.ended(op.ID).State != "cancelled" {
		t.Errorf("again: %d", again.StatusCode)
	}
	p.wantLogged(2, `"msg":"control","action":"cancel"`, op.ID)
	p.wantLogged(1, `"state":"cancelled"`, op.ID)
}

// TestAnOperationWaitsForReads: an operation that begins during a read is not refused for it.
func TestAnOperationWaitsForReads(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	p.park("a", 503, "{}")
	p.o.DeadLetters.Reads <- struct{}{} // a read is under way
	op := p.begin("/dlq/redrive", `{"all":true}`)
	if op.State != "running" {
		t.Errorf("%+v", op)
	}
	p.wantProblem("read", p.do(http.MethodGet, p.control, "/dlq/messages", nil), http.StatusConflict)
	<-p.o.DeadLetters.Reads
	p.wantEnd(p.ended(op.ID), "succeeded", 1)
	p.o.DeadLetters.Reads <- struct{}{}
	op = p.begin("/dlq/redrive", `{"all":true}`)
	p.post("/dlq/operations/"+op.ID+"/cancel", "")
	if p.wantEnd(p.ended(op.ID), "cancelled", 0); len(p.o.DeadLetters.Reads) != 1 {
		t.Errorf("%d turns", len(p.o.DeadLetters.Reads))
	}
}

func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.DeadLetters = away(t, o.Logger) })
	fill(r.o.DeadLetters.Reads)
	r.wantProblem("no turn", r.do(http.MethodGet, r.control, "/dlq/messages", nil), http.StatusConflict, "too many reads")
	fill(r.o.DeadLetters.Depths)
	for _, path := range []string{"/dlq", "/admin/dlq/queues"} {
		r.wantProblem(path, r.do(http.MethodGet, r.control, path, nil), http.StatusServiceUnavailable)
	}
}

// TestABrokerThatIsSilent: the answer comes within the listener's bounds. A cancel ends an operation, and a shutdown a
// read.
func TestABrokerThatIsSilent(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	proxy := brokertest.NewProxy(t, p.url)
	o := brokerOf(proxy.URL(t, p.url))
	o.Timeout = time.Hour
	q := deadletter.New(deadletter.Options{Broker: o}, deadletter.Owner{Plan: p.plan})[0]
	proxy.Stall(brokertest.Both)
	r := start(t, func(o *Options) { o.DeadLetters = apiOf(q, o.Logger) })
	r.wantProblem("/dlq", r.do(http.MethodGet, r.control, "/dlq", nil), http.StatusServiceUnavailable, "does not answer")
	op := r.begin("/dlq/redrive", `{"all":true}`)
	r.post("/dlq/operations/"+op.ID+"/cancel", "")
	r.wantEnd(r.ended(op.ID), "cancelled", 0)
	answered := make(chan reply)
	go func() { answered <- r.do(http.MethodGet, r.control, "/dlq/messages", nil) }()
	brokertest.Eventually(t, time.Minute, "it reads", func() bool { return len(r.o.DeadLetters.Reads) == 1 })
	r.shutdown()
	r.wantProblem("read", <-answered, http.StatusServiceUnavailable, "the sidecar stops")
}

// redrivenAnswer is what the path of the existing interface answers.
type redrivenAnswer struct {
	Queue                                  string
	Requested, Redriven, Failed, Remaining int
}

func TestTheExistingAdminInterface(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	p := startParking(t, func(o *topology.Options) {
		o.Preset, o.Bindings = topology.PresetPerQueue, []topology.Binding{{Exchange: "amq.topic", Key: "key"}}
	}, func(o *Options) { o.Gatherer = registry })
	p.parkMany(15)
	var queues struct {
		Queues []struct {
			Name, Service, Queue string
			Messages, Consumers  int
		}
	}
	p.get("/admin/dlq/queues", &queues)
	if q := queues.Queues; len(q) != 1 || q[0].Name != p.dlq() || q[0].Messages != 15 || q[0].Service != p.plan.Service || q[0].Queue != p.plan.Queue {
		t.Errorf("%+v", q)
	}
	path := "/admin/dlq/queues/" + p.dlq()
	var list page
	if p.get(path+"/messages?limit=20", &list); len(list.Messages) != 15 {
		t.Errorf("%d messages", len(list.Messages))
	}
	for _, body := range []string{
		`{"limit":0}`, `{"limit":-1}`, `{"limit":1e9}`, `{"limit":1001}`, `{"limit":NaN}`, `{"limit":"x"}`, `{"limit":"10"}`, `{"limit":null}`, `{"limit":1.5}`,
		`{"limit":1,"all":true}`, `{"limit":1}{`, "[]", "null", `{"Limit":1}`,
	} {
		p.wantProblem(body, p.post(path+"/re-drive", body), http.StatusBadRequest)
	}
	for i, c := range []struct {
		body string
		want redrivenAnswer
	}{
		{`{"limit":3}`, redrivenAnswer{p.dlq(), 3, 3, 0, 12}}, {"", redrivenAnswer{p.dlq(), 10, 10, 0, 2}}, {" {} ", redrivenAnswer{p.dlq(), 10, 2, 0, 0}}, {"{}", redrivenAnswer{p.dlq(), 10, 0, 0, 0}},
	} {
		var got redrivenAnswer
		if p.decode(c.body, p.post(path+"/re-drive", c.body), http.StatusOK, &got); got != c.want {
			t.Errorf("%d: %+v, want %+v", i, got, c.want)
		}
	}
	// By way of the retry exchange, as the preset says.
	if n := brokertest.Ready(t, p.url, p.plan.Waits[0].Queue); n != 15 {
		t.Errorf("%d messages wait", n)
	}
	p.wantLogged(4, `"msg":"control","action":"redrive"`, `"status":200`)
}

// TestARedriveThatFailsInTheMiddle says how far it has come.
func TestARedriveThatFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	p.parkMany(10)
	// The service's queue takes four of them.
	must.Get(p.ch.QueueDelete(p.plan.Queue, false, false, false))(t)
	brokertest.Queue(t, p.url, p.plan.Queue, amqp.Table{"x-max-length": int32(4), "x-overflow": "reject-publish"})
	got := p.post("/admin/dlq/queues/"+p.dlq()+"/re-drive", "")
	p.wantProblem("full", got, http.StatusServiceUnavailable)
	if moved := brokertest.Ready(t, p.url, p.plan.Queue); moved == 0 || !strings.Contains(got.body, "messages were redriven before") {
		t.Errorf("%d moved: %s", moved, got.body)
	}
	p.wantLogged(1, `"msg":"control","action":"redrive"`, `"status":503`)
	op := p.begin("/dlq/redrive", `{"all":true}`)
	if op = p.ended(op.ID); op.State != "failed" || op.Error == "" || op.Progress.Failed == 0 {
		t.Errorf("%+v", op)
	}
	p.wantLogged(2, `"level":"warn","msg":"control operation ended"`, `"state":"failed"`)
}

// TestAClientThatLeaves: the redrive goes on to its end.
func TestAClientThatLeaves(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	p.parkMany(20)
	p.o.DeadLetters.Reads <- struct{}{} // the redrive waits for a read, so that the client is gone before it begins
	path := "/admin/dlq/queues/" + p.dlq() + "/re-drive"
	conn := p.send(p.control, "POST "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"limit\":15}")
	var list []dlq.Operation
	brokertest.Eventually(t, time.Minute, "it has begun", func() bool {
		list, _ = p.o.DeadLetters.Since(0)
		return len(list) == 1
	})
	conn.Close()
	brokertest.Eventually(t, time.Minute, "the request has ended", func() bool { return len(p.busy) == 0 })
	<-p.o.DeadLetters.Reads
	p.wantEnd(p.ended(list[0].ID), "succeeded", 15)
	p.wantLogged(1, `"msg":"control","action":"redrive"`, `"status":202`)
	if n := brokertest.Ready(t, p.url, p.plan.Queue); n != 15 {
		t.Errorf("%d moved", n)
	}
}
