package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

type summary struct {
	Queue                   string
	Total, Scanned, Matched int
	Complete                bool
}

type page struct {
	Summary  summary
	Messages []struct {
		deadletter.View
		Body *deadletter.Body
	}
}

func (p *page) ids() string {
	var all []string
	for _, m := range p.Messages {
		all = append(all, m.MessageID)
	}
	return strings.Join(all, " ")
}

func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	p.parkThree()

	var state struct {
		Queue            string
		Ready, Consumers int
	}
	if p.get("/dlq", &state); state.Queue != p.dlq() || state.Ready != 3 || state.Consumers != 0 {
		t.Errorf("%+v", state)
	}
	for query, want := range map[string]string{
		"": "a b c", "?limit=2": "a b", "?scan=1": "a", "?status=404&status=503": "a b c", "?text=AMOUNT&status=5xx": "a",
		"?id=c&id=b": "b c", "?error=boom": "", "?limit=1000&scan=1000000": "a b c",
	} {
		var got page
		p.get("/dlq/messages"+query, &got)
		if got.ids() != want || got.Summary.Total != 3 || got.Summary.Queue != p.dlq() {
			t.Errorf("%s: %s, want %s (%+v)", query, got.ids(), want, got.Summary)
		}
		if whole := !strings.Contains(query, "limit=2") && !strings.Contains(query, "scan=1"); whole != got.Summary.Complete && query != "?limit=1000&scan=1000000" {
			t.Errorf("%s: complete is %v", query, got.Summary.Complete)
		}
	}
	var groups struct {
		Summary summary
		Groups  []deadletter.Group
	}
	if p.get("/dlq/groups", &groups); len(groups.Groups) != 2 || groups.Groups[0].Count != 2 || groups.Groups[0].Status != 503 {
		t.Errorf("%+v", groups)
	}
	var one page
	if p.get("/dlq/messages?group="+groups.Groups[1].ID, &one); one.ids() != "b" {
		t.Errorf("group: %s", one.ids())
	}
	if p.get("/dlq/groups?status=404", &groups); len(groups.Groups) != 1 || groups.Summary.Matched != 1 {
		t.Errorf("%+v", groups)
	}
	p.get("/dlq/groups?status=500", &groups) // an empty list is one
	if log := p.log.String(); strings.Contains(log, `"msg":"control"`) {
		t.Errorf("a read is written down: %s", log)
	}
}

func TestOneMessageInFull(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	p.park("a", 503, `{"amount":1}`)
	p.park("large", 503, strings.Repeat("x", (64<<10)+1))
	var list page
	p.get("/dlq/messages", &list)
	path := "/dlq/messages/" + list.Messages[0].Ref
	var m struct {
		MessageID string `json:"message_id"`
		Headers   map[string]struct{ Type, Value any }
		Body      *deadletter.Body
		Journey   []any
	}
	if p.get(path, &m); m.MessageID != "a" || m.Body != nil || fmt.Sprint(m.Headers["x-final-status-code"]) != "{int32 503}" || len(m.Journey) != 0 {
		t.Errorf("%+v", m)
	}
	if p.get(path+"?body=false", &m); m.Body != nil {
		t.Error("a body that was not asked for")
	}
	p.wantLogged(0, "show bodies")
	if p.get(path+"?body=true", &m); m.Body == nil || m.Body.Format != "json" || !strings.Contains(m.Body.Text, `"amount": 1`) {
		t.Errorf("%+v", m.Body)
	}
	p.wantLogged(1, `"msg":"control","action":"show bodies","peer":"127.0.0.1:`, `"message":"`+list.Messages[0].Ref)
	p.get("/dlq/messages/"+list.Messages[1].Ref+"?body=true", &m)
	if m.Body.Size != (64<<10)+1 || len(m.Body.Text) != (64<<10) || !m.Body.Truncated {
		t.Errorf("%d of %d bytes", len(m.Body.Text), m.Body.Size)
	}
	p.wantProblem("another", p.do(http.MethodGet, p.control, "/dlq/messages/0123456789abcdef", nil), http.StatusNotFound)
	for _, query := range []string{"?body=1", "?body=true&body=true", "?body", "?limit=1", "?status=503", "?body=TRUE"} {
		p.wantProblem(query, p.do(http.MethodGet, p.control, path+query, nil), http.StatusBadRequest)
	}
	if got := p.do(http.MethodHead, p.control, path, nil); got.StatusCode != http.StatusOK || got.body != "" {
		t.Errorf("HEAD: %d %s", got.StatusCode, got.body)
	}
}

// TestBodiesOfAList: only on the path of the existing admin interface, and no more than fits.
func TestBodiesOfAList(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	large := strings.Repeat("y", 1<<20)
	for i := range 5 + (4<<20)/(64<<10) {
		p.park(fmt.Sprint(i), 500, large[:(64<<10)+i])
	}
	path := "/admin/dlq/queues/" + p.dlq() + "/messages?limit=1000"
	var got page
	if p.get(path, &got); got.Messages[0].Body != nil {
		t.Error("a body that was not asked for")
	}
	p.get(path+"&body=true", &got)
	total := 0
	for i, m := range got.Messages {
		if with := m.Body != nil; with != (i < (4<<20)/(64<<10)) {
			t.Errorf("message %d of %d: body %v", i, len(got.Messages), with)
		}
		if m.Body != nil {
			total += len(m.Body.Text)
		}
	}
	if total != (4 << 20) {
		t.Errorf("%d bytes", total)
	}
	p.wantProblem("not here", p.do(http.MethodGet, p.control, "/dlq/messages?body=true", nil), http.StatusBadRequest)
}

func TestBadQueries(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.DeadLetters = away(t, o.Logger) })
	queue := "/admin/dlq/queues/wms.dlq.wms-a/messages"
	for _, path := range []string{"/dlq/messages", queue} {
		for _, query := range []string{
			"limit=0", "limit=-1", "limit=1e9", "limit=1001", "limit=NaN", "limit=x", "limit=", "limit", "limit=%22x%22", "limit=1.0", "limit=+1", "limit=%2B1",
			"limit=0x10", "limit=99999999999999999999", "limit=1&limit=2", "scan=0", "scan=1000001", "scan=1e3", "status=200=", "status=", "status=6000",
			"reason=x", "older=1", "older=-1h", "older=1h&older=2h", "newer=1h&newer=1h", "error=a&error=b", "text=a&text=b", "text=", "group=a&group=b", "header==x", "header=",
			"id=", "Limit=1", "statuz=503", "routing_key=x", "a;b", "limit=1;scan=1", "%zz", "status=%zz", "=1", strings.Repeat("id=x&", 1001) + "id=x",
		} {
			r.wantProblem(path+"?"+query[:min(len(query), 50)], r.do(http.MethodGet, r.control, path+"?"+query, nil), http.StatusBadRequest)
		}
	}
	for _, query := range []string{"limit=1", "x=1", "status=x", "body=true"} {
		r.wantProblem("groups?"+query, r.do(http.MethodGet, r.control, "/dlq/groups?"+query, nil), http.StatusBadRequest)
	}
	// What is right is asked of the broker, which is away.
	for _, path := range []string{"/dlq/messages?limit=1", queue + "?limit=1000&body=false", "/dlq/groups", "/dlq", "/admin/dlq/queues", "/dlq/messages/0123456789abcdef"} {
		got := r.do(http.MethodGet, r.control, path, nil)
		r.wantProblem(path, got, http.StatusServiceUnavailable)
		if got.Header.Get("Retry-After") == "" || !strings.Contains(got.body, "127.0.0.1:1") || strings.Contains(got.body, "guest:guest") {
			t.Errorf("%s: %v %s", path, got.Header, got.body)
		}
	}
	for path, body := range map[string]string{
		"/dlq/redrive": `{"all":true}`, "/dlq/discard": `{"all":true,"confirm":"wms.dlq.wms-a"}`, "/admin/dlq/queues/wms.dlq.wms-a/re-drive": "",
	} {
		got := r.post(path, body)
		r.wantProblem(path, got, http.StatusServiceUnavailable)
		if got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
}

// TestAMissingQueue: it is in the topology, and not in the broker. A queue that a read would harm is a conflict, not
// trouble that passes.
func TestAMissingQueue(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	must.Get(p.ch.QueueDelete(p.dlq(), false, false, false))(t)
	queue := "/admin/dlq/queues/" + p.dlq()
	for _, path := range []string{"/dlq", "/dlq/messages", "/dlq/groups", "/dlq/messages/0123456789abcdef", "/admin/dlq/queues", queue + "/messages"} {
		p.wantProblem(path, p.do(http.MethodGet, p.control, path, nil), http.StatusNotFound)
	}
	for path, body := range map[string]string{
		"/dlq/redrive": `{"all":true}`, "/dlq/discard": `{"all":true,"dry_run":true}`, queue + "/re-drive": "",
	} {
		p.wantProblem(path, p.post(path, body), http.StatusNotFound)
	}
	brokertest.Queue(t, p.url, p.dlq(), amqp.Table{"x-single-active-consumer": true})
	brokertest.Send(t, p.url, p.dlq(), "kept")
	brokertest.WaitReady(t, p.url, p.dlq(), 1)
	p.wantProblem("read", p.do(http.MethodGet, p.control, "/dlq/messages", nil), http.StatusConflict, "x-single-active-consumer")
	brokertest.WaitReady(t, p.url, p.dlq(), 1)
}

// TestQueueNames: a queue is found by its percent-encoded name alone, and the broker is not asked about
// another one: this one is away, which would be a 503.
func TestQueueNames(t *testing.T) {
	t.Parallel()
	const name = `a/b c%é"<img>..;x`
	plan := must.Get(topology.Build(topology.Options{Preset: topology.PresetFanout, Service: "wms-a", DLQ: name}))(t)
	r := start(t, func(o *Options) { o.DeadLetters = queueOf(t, o.Logger, plan, "amqp://guest:guest@127.0.0.1:1/") })
	const known = "a%2Fb%20c%25%C3%A9%22%3Cimg%3E..%3Bx"
	r.wantProblem(known, r.do(http.MethodGet, r.control, "/admin/dlq/queues/"+known+"/messages", nil), http.StatusServiceUnavailable)
	r.wantProblem(known, r.post("/admin/dlq/queues/"+known+"/re-drive", "{}"), http.StatusServiceUnavailable)
	for _, other := range []string{
		"a/b%20c%25%C3%A9%22%3Cimg%3E..%3Bx", "a%2fb%20c%25%c3%a9%22%3cimg%3e..%3bx", "%61%2Fb%20c%25%C3%A9%22%3Cimg%3E..%3Bx", known + "x", "",
		known + "/", "../" + known, "other.dlq", "amq.rabbitmq.trace", "..", "wms.queue.wms-a", "%2e%2e", "..%2f" + known, "{queue}", "%00", "0123456789abcdef",
	} {
		for _, path := range []string{"/admin/dlq/queues/" + other + "/messages", "/admin/dlq/queues/" + other + "/re-drive"} {
			r.wantProblem(path, r.do(http.MethodGet, r.control, path, nil), http.StatusNotFound)
			r.wantProblem(path, r.post(path, "{}"), http.StatusNotFound)
		}
	}
}

func TestPathsWithIdentifiers(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.DeadLetters = away(t, o.Logger) })
	const id = "0123456789abcdef"
	for _, path := range []string{
		"/dlq/messages/{id}", "/dlq/messages/%7Bid%7D", "/dlq/messages/" + id + "/", "/dlq/messages/" + id + "/cancel", "/dlq/messages/" + id[1:], "/dlq/messages/" + id + "0",
		"/dlq/messages/0123456789ABCDEF", "/dlq/messages/012345678%39abcdef", "/dlq/messages//" + id, "//dlq/messages/" + id, "/dlq/" + id, "/" + id, "/dlq/messages/" + id + ";x",
		"/dlq/operations/" + id + "/" + id, "/dlq/operations/" + id + "/cancel/", "/dlq/messages/../messages/" + id, "/admin/dlq/queues/" + id + "/messages",
		"/dlq/", "/dlq;x", "/dlq/.", "/dlq/%2e%2e/status", "/admin/../metrics", "/admin/%2e%2e/metrics", "/DLQ", "/admin/dlq", "/admin/dlq/queues/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r.wantProblem(method+" "+path, r.do(method, r.control, path, nil), http.StatusNotFound)
		}
	}
	for _, path := range []string{"/dlq/operations/" + id, "/dlq/operations/" + id + "/cancel"} {
		method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[strings.HasSuffix(path, "cancel")]
		r.wantProblem(path, r.do(method, r.control, path, nil), http.StatusNotFound, "operation")
	}
}

// TestAMessageIsData: whatever a message holds is text in JSON that no browser takes for a page.
func TestAMessageIsData(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	const evil = `<img src=x onerror=alert(1)>"'&` + "\u2028"
	m := p.message(evil, 500, evil)
	for _, h := range []string{"x-original-queue", "x-original-exchange", "x-original-routing-key", "x-final-reason", "x-final-error", "x-final-detail", "x-final-problem-title", evil} {
		m.Headers[h] = evil
	}
	m.ContentType, m.CorrelationId, m.AppId = evil, "\xff\xfe", evil
	m.Headers["x-death"] = []any{amqp.Table{"queue": evil, "reason": evil, "count": int64(1), "exchange": evil, "routing-keys": []any{evil}}, "no table"}
	brokertest.Publish(t, p.ch, "", p.dlq(), m)
	brokertest.WaitReady(t, p.url, p.dlq(), 1)
	var list page
	p.get("/dlq/messages", &list)
	paths := []string{"/dlq/messages", "/dlq/groups", "/dlq/messages/" + list.Messages[0].Ref + "?body=true"}
	for _, path := range paths {
		got := p.do(http.MethodGet, p.control, path, nil)
		if ct := got.Header.Get("Content-Type"); ct != "application/json" || got.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s", path, ct)
		}
		if strings.ContainsAny(got.body, "<>") || !strings.Contains(got.body, `\u003cimg src=x onerror=alert(1)\u003e`) {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	if list.Messages[0].MessageID != evil {
		t.Errorf("%q", list.Messages[0].MessageID)
	}
}
