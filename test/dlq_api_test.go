package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/openapitest"
)

// control talks to the control listener of a sidecar. Everything that is asked and answered is compared with the
// OpenAPI document that the sidecar itself serves.
type control struct {
	*sidecar
	bearer   string
	document *openapitest.Document
}

func (s *sidecar) api(bearer string) *control {
	s.t.Helper()
	c := &control{sidecar: s, bearer: bearer}
	code, text := s.request(http.MethodGet, s.control, "/openapi.json", c.authorize)
	if code != http.StatusOK {
		s.t.Fatalf("GET /openapi.json: %d %s", code, text)
	}
	c.document = openapitest.Load(s.t, []byte(text))
	return c
}

func (c *control) authorize(r *http.Request) {
	if c.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	}
}

// ask sends a request; a body goes as JSON.
func (c *control) ask(method, path, body string, edit ...func(*http.Request)) (int, http.Header, string) {
	c.t.Helper()
	var asked *http.Request
	code, header, text := c.do(method, c.control, path, func(r *http.Request) {
		c.authorize(r)
		if body != "" {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Type", "application/json")
		}
		for _, e := range edit {
			e(r)
		}
		asked = r
	})
	if code == 0 {
		c.t.Fatalf("%s %s: %s", method, path, text)
	}
	c.document.Check(c.t, &openapitest.Exchange{
		Method: method, URL: asked.URL, Type: asked.Header.Get("Content-Type"), Body: []byte(body),
		Status: code, Header: header, Answer: []byte(text),
	})
	return code, header, text
}

// want asks and decodes an answer that must have that status.
func (c *control) want(status int, method, path, body string, into any) {
	c.t.Helper()
	code, _, text := c.ask(method, path, body)
	if code != status {
		c.t.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, code, status, text)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			c.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
}

// apiOperation is what is asked of an operation here.
type apiOperation struct {
	ID, Kind, State, Error string
	Progress               struct {
		Total, Matched, Done, Failed int
		Canary                       struct {
			Sent, Good int
			Done       bool
		}
	}
}

func (c *control) begin(path, body string) apiOperation {
	c.t.Helper()
	var op apiOperation
	c.want(http.StatusAccepted, http.MethodPost, path, body, &op)
	return op
}

// over waits for the end of an operation.
func (c *control) over(id string) (op apiOperation) {
	c.t.Helper()
	eventually(c.t, "operation "+id+" is over", func() bool {
		c.want(http.StatusOK, http.MethodGet, "/dlq/operations/"+id, "", &op)
		return op.State != "running"
	})
	return op
}

type apiPage struct {
	Summary  struct{ Total, Matched int }
	Messages []struct {
		Ref       string
		MessageID string `json:"message_id"`
		Status    int
		Body      *struct{ Text string }
	}
}

// parkedFor are n messages as the sidecar parks them in queue's dead-letter queue.
func parkedFor(queue string, n int) []amqp.Publishing {
	list := messages(numbered("m", n)...)
	for i := range list {
		list[i].Headers = amqp.Table{
			"x-original-queue": queue, "x-original-routing-key": "order.created", "x-final-reason": "max_retries",
			"x-final-status-code": int32(503), "x-final-retry-count": int32(10), "x-final-at": "2026-11-20T10:00:00.000Z",
		}
	}
	return list
}

// TestDeadLetterAPIOfTheSeed: list the queues, read, redrive some and then the rest, in the words of the existing admin
// interface; the app was repaired meanwhile.
func TestDeadLetterAPIOfTheSeed(t *testing.T) {
	t.Parallel()
	for i, name := range map[int]string{0: "fanout", 3: "per-queue"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			p := presets(sc.prefix)[i]
			sc.with("TOPOLOGY", p.name).with(p.env...).with("MAX_RETRIES", "0")
			sc.app.otherwise(func(*delivery) answer { return status(500) })
			s := sc.run()
			c := s.api("")
			ids := numbered("m", 15)
			sc.publish(p.exchange, p.key, messages(ids...)...)
			eventually(t, "all parked", func() bool { return sc.ready(p.dlq) == 15 })

			var queues struct {
				Queues []struct {
					Name, Service, Queue string
					Messages             int
				}
			}
			c.want(200, "GET", "/admin/dlq/queues", "", &queues)
			if q := queues.Queues; len(q) != 1 || q[0].Name != p.dlq || q[0].Messages != 15 || q[0].Service != sc.service || q[0].Queue != p.queue {
				t.Errorf("%+v", q)
			}
			queue := "/admin/dlq/queues/" + url.PathEscape(p.dlq)
			var list apiPage
			c.want(200, "GET", queue+"/messages?limit=10&body=true", "", &list)
			if len(list.Messages) != 10 || list.Summary.Total != 15 || list.Messages[0].Status != 500 || list.Messages[0].Body == nil {
				t.Errorf("%+v", list)
			}
			sc.app.otherwise(func(*delivery) answer { return status(200) })
			var done struct{ Requested, Redriven, Failed, Remaining int }
			c.want(200, "POST", queue+"/re-drive", `{"limit":10}`, &done)
			if done.Requested != 10 || done.Redriven != 10 || done.Failed != 0 || done.Remaining != 5 {
				t.Errorf("%+v", done)
			}
			c.want(200, "POST", queue+"/re-drive", "", &done)
			if done.Redriven != 5 || done.Remaining != 0 {
				t.Errorf("%+v", done)
			}
			for _, id := range ids {
				s.awaitOutcome(id, "ack")
				if n := len(sc.app.seen(id)); n != 2 {
					t.Errorf("%s was tried %d times", id, n)
				}
			}
			if n := s.metric("sidecar_redriven_total", `result="ok"`); n != 15 {
				t.Errorf("%v redriven in the metrics", n)
			}
			eventually(t, "a log line for each redrive", func() bool { // it is written after the answer
				return len(s.log.find(func(e entry) bool { return e.is("control") && e.text("action") == "redrive" })) == 2
			})
			s.stop()
			for _, q := range append(p.queues, p.queue, p.dlq) {
				if n := sc.ready(q); n != 0 {
					t.Errorf("%d messages in %s", n, q)
				}
			}
		})
	}
}

// TestDeadLetterAPI: understand what fails, send a canary, redrive a group, discard the rest.
func TestDeadLetterAPI(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0")
	sc.app.otherwise(func(d *delivery) answer {
		if strings.HasPrefix(d.id, "broken") {
			return answer{status: 422, header: map[string]string{"Content-Type": "application/problem+json"}, body: `{"type":"https://example.test/no-stock","title":"No stock"}`}
		}
		return status(503)
	})
	s := sc.run()
	c := s.api("")
	sc.send(numbered("late", 6)...)
	sc.send(numbered("broken", 3)...)
	eventually(t, "all parked", func() bool { return sc.ready(sc.dlq()) == 9 })

	var groups struct {
		Groups []struct {
			ID, Problem   string
			Status, Count int
		}
	}
	c.want(200, "GET", "/dlq/groups", "", &groups)
	if g := groups.Groups; len(g) != 2 || g[0].Status != 503 || g[0].Count != 6 || g[1].Problem != "https://example.test/no-stock" || g[1].Count != 3 {
		t.Fatalf("%+v", g)
	}
	var list apiPage
	c.want(200, "GET", "/dlq/messages?group="+groups.Groups[1].ID, "", &list)
	if list.Summary.Matched != 3 || !strings.HasPrefix(list.Messages[0].MessageID, "broken") {
		t.Errorf("%+v", list)
	}
	c.want(200, "GET", "/dlq/messages/"+list.Messages[0].Ref+"?body=true", "", nil)

	late := fmt.Sprintf(`"filter":{"group":%q}`, groups.Groups[0].ID)
	op := c.over(c.begin("/dlq/redrive", "{"+late+`,"canary":2}`).ID)
	if op.State != "failed" || !strings.Contains(op.Error, "canary") || op.Progress.Canary.Sent != 2 {
		t.Errorf("the app still fails: %+v", op)
	}
	eventually(t, "the canaries are parked again", func() bool { return sc.ready(sc.dlq()) == 9 })
	sc.app.otherwise(func(*delivery) answer { return status(200) })
	op = c.over(c.begin("/dlq/redrive", "{"+late+`,"canary":2,"rate":"100/s"}`).ID)
	if op.State != "succeeded" || op.Progress.Done != 6 || !op.Progress.Canary.Done {
		t.Errorf("%+v", op)
	}
	s.awaitAcked(numbered("late", 6)...)
	c.want(404, "POST", "/dlq/purge", `{"confirm":"all of it"}`, nil)
	c.want(400, "POST", "/dlq/discard", `{"all":true,"confirm":"all of it"}`, nil)
	op = c.over(c.begin("/dlq/discard", fmt.Sprintf(`{"all":true,"confirm":%q}`, sc.dlq())).ID)
	if op.Kind != "discard" || op.Progress.Done != 3 {
		t.Errorf("%+v", op)
	}
	var all struct{ Operations []apiOperation }
	if c.want(200, "GET", "/dlq/operations", "", &all); len(all.Operations) != 3 {
		t.Errorf("%+v", all)
	}
	sc.settledAll(s, 0)
}

// TestDeadLetterAPIOneAtATime: two redrives at once, within the process and beside it; the client that began one may
// leave.
func TestDeadLetterAPIOneAtATime(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	s := sc.run()
	c := s.api("")
	c.want(200, "POST", "/pause", "", nil)
	sc.publish("", sc.dlq(), parkedFor(sc.queue(), 60)...)
	op := c.begin("/dlq/redrive", `{"all":true,"rate":"2/s"}`)
	for path, body := range map[string]string{
		"/dlq/redrive": `{"all":true}`, "/dlq/discard": `{"all":true,"dry_run":true}`, "/admin/dlq/queues/" + sc.dlq() + "/re-drive": `{"limit":1}`,
	} {
		if code, _, text := c.ask("POST", path, body); code != 409 || !strings.Contains(text, op.ID) {
			t.Errorf("POST %s: %d %s", path, code, text)
		}
	}
	if code, _, text := c.ask("GET", "/dlq/messages", ""); code != 409 || !strings.Contains(text, op.ID) {
		t.Errorf("a read meanwhile: %d %s", code, text)
	}
	o := start(t, sc.env).api("")      // a second replica
	eventually(t, "409", func() bool { // 202 when it has not found out within two seconds
		code, _, _ := o.ask("POST", "/dlq/redrive", `{"all":true}`)
		return code == 409
	})
	o.want(409, "POST", "/admin/dlq/queues/"+sc.dlq()+"/re-drive", "", nil)
	o.kill()
	c.want(202, "POST", "/dlq/operations/"+op.ID+"/cancel", "", nil)
	if op = c.over(op.ID); op.State != "cancelled" || op.Progress.Done >= 60 {
		t.Errorf("%+v", op)
	}

	// One whose client leaves goes on.
	left := sc.ready(sc.dlq())
	conn, err := net.Dial("tcp", s.control)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /admin/dlq/queues/%s/re-drive HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", sc.dlq())
	eventually(t, "it has begun", func() bool {
		var all struct{ Operations []apiOperation }
		c.want(200, "GET", "/dlq/operations", "", &all)
		return len(all.Operations) == 2
	})
	conn.Close()
	eventually(t, "it is done", func() bool { return sc.ready(sc.dlq()) == left-10 })
	c.want(200, "POST", "/resume", "", nil)
	sc.app.awaitAll(numbered("m", 60-(left-10))...)
	s.stop()
	if n := sc.ready(sc.dlq()); n != left-10 {
		t.Errorf("%d parked, want %d", n, left-10)
	}
}

// TestDeadLetterAPIStops: SIGTERM in the middle of a redrive ends it at a safe point.
func TestDeadLetterAPIStops(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	s := sc.run()
	c := s.api("")
	c.want(200, "POST", "/pause", "", nil)
	sc.publish("", sc.dlq(), parkedFor(sc.queue(), 50)...)
	op := c.begin("/dlq/redrive", `{"all":true,"rate":"5/s"}`)
	eventually(t, "some were moved", func() bool { return sc.ready(sc.queue()) > 1 })
	s.stop()
	if parked, back := sc.ready(sc.dlq()), sc.ready(sc.queue()); parked+back != 50 || back < 2 || parked == 0 {
		t.Errorf("%d parked, %d back", parked, back)
	}
	if !s.log.mentions(op.ID, `"state":"cancelled"`, "the sidecar stops") {
		t.Errorf("the log does not say how it ended:\n%s", s.log.tail(10))
	}
}

func TestDeadLetterAPITokens(t *testing.T) {
	t.Parallel()
	const write, read = "canary-write-0123456789", "canary-read-0123456789"
	sc := newScene(t).with("CONTROL_TOKEN", write, "CONTROL_READ_TOKEN", read)
	s := sc.run()
	sc.publish("", sc.dlq(), parkedFor(sc.queue(), 1)...)
	w, r := s.api(write), s.api(read)
	var list apiPage
	r.want(200, "GET", "/dlq/messages", "", &list)
	message, queue := "/dlq/messages/"+list.Messages[0].Ref, "/admin/dlq/queues/"+sc.dlq()
	r.want(200, "GET", message, "", nil)
	for _, path := range []string{"/status", "/topology", "/dlq", "/dlq/groups", "/dlq/operations", "/admin/dlq/queues", queue + "/messages"} {
		r.want(200, "GET", path, "", nil)
	}
	for _, path := range []string{message + "?body=true", queue + "/messages?body=true"} {
		r.want(403, "GET", path, "", nil)
		w.want(200, "GET", path, "", nil)
	}
	for _, path := range []string{"/dlq/redrive", "/dlq/discard", "/dlq/operations/0123456789abcdef/cancel", queue + "/re-drive", "/pause", "/drain", "/nowhere"} {
		r.want(403, "POST", path, `{"all":true}`, nil)
	}
	none, wrong := *w, *w
	none.bearer, wrong.bearer = "", "canary-wrong-0123456789"
	for _, c := range []control{none, wrong} {
		for _, path := range []string{"/console", "/dlq", message, "/events", "/openapi.json", "/nowhere", "/admin/../metrics"} {
			c.want(401, "GET", path, "", nil)
		}
		c.want(401, "POST", "/dlq/redrive", `{"all":true}`, nil)
	}
	if sc.ready(sc.dlq()) != 1 || !s.ready() {
		t.Error("something has changed")
	}
	w.over(w.begin("/dlq/redrive", `{"all":true}`).ID)
	s.awaitOutcome(numbered("m", 1)[0], "ack")
	if r := command(t, sc.running(s), "drain"); r.code != 0 {
		t.Errorf("drain with the token in its environment: exit %d: %s", r.code, r.all())
	}
	for _, secret := range []string{write, read, wrong.bearer} {
		if s.log.mentions(secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
	if len(s.log.find(func(e entry) bool {
		return e.is("control") && e.text("action") == "show bodies" && e.text("scope") == "write"
	})) != 2 {
		t.Error("the log does not say that bodies were shown")
	}
}

// TestDeadLetterAPIBadInputs: one of each kind (package admin has the tables) is refused with a problem document, and
// neither the queue nor the sidecar is touched.
func TestDeadLetterAPIBadInputs(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	s := sc.run()
	c := s.api("")
	sc.publish("", sc.dlq(), parkedFor(sc.queue(), 3)...)
	queue := "/admin/dlq/queues/" + sc.dlq()
	for _, r := range []struct {
		want               int
		method, path, body string
		header             []string // name and value, or none
	}{
		{400, "GET", "/dlq/messages?limit=NaN", "", nil},
		{400, "GET", queue + "/messages?limit=1e9", "", nil},
		{400, "POST", queue + "/re-drive", `{"limit":-1}`, nil},
		{400, "POST", "/dlq/redrive", `{"all":true,"limit":"x"}`, nil},
		{400, "POST", "/dlq/redrive", `{"all":true,"all":true}`, nil},
		{400, "POST", "/dlq/redrive", strings.Repeat(`{"filter":`, 10000), nil},
		{400, "POST", "/dlq/redrive", "\xff\xfe{\x00}\x00", nil},
		{400, "POST", "/dlq/redrive", `{}`, []string{"X-Forwarded-For", "203.0.113.9"}},
		{400, "POST", "/dlq/redrive", `{"all":true}`, []string{"X-Http-Method-Override", "POST"}},
		{403, "POST", "/dlq/redrive", `{"all":true}`, []string{"Origin", "http://evil.example"}},
		{403, "GET", "/status", "", []string{"Origin", "null"}},
		{403, "POST", "/pause", "", []string{"Sec-Fetch-Site", "cross-site"}},
		{404, "GET", "/admin/dlq/queues/other.dlq/messages", "", nil},
		{404, "POST", "/admin/dlq/queues/%2e%2e/re-drive", "{}", nil},
		{404, "POST", "/admin/dlq/queues/" + sc.queue() + "/re-drive", "{}", nil},
		{404, "GET", "/admin/../metrics", "", nil},
		{404, "GET", "/dlq/messages;x", "", nil},
		{404, "GET", "/debug/pprof/", "", nil},
		{405, "GET", "/drain", "", nil},
		{405, "GET", queue + "/re-drive", "", nil},
		{405, "TRACE", "/pause", "", nil},
		{415, "POST", "/dlq/redrive", `{"all":true}`, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{421, "GET", "/status", "", []string{"Host", "evil.example"}},
		{421, "POST", "/pause", "", []string{"Host", "evil.example:9091"}},
	} {
		code, header, text := c.ask(r.method, r.path, r.body, func(q *http.Request) {
			switch {
			case r.header == nil:
			case r.header[0] == "Host":
				q.Host = r.header[1]
			default:
				q.Header.Set(r.header[0], r.header[1])
			}
		})
		if code != r.want || header.Get("Content-Type") != "application/problem+json" || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s %.40s %v: %d %v %s, want %d", r.method, r.path, r.body, r.header, code, header, text, r.want)
		}
	}
	if s.log.mentions("203.0.113.9") || !s.log.mentions(`"msg":"control"`, `"action":"redrive"`, `"status":400`, `"peer":"127.0.0.1:`) {
		t.Errorf("the log believes a forged peer:\n%s", s.log.tail(5))
	}
	var all struct{ Operations []apiOperation }
	if c.want(200, "GET", "/dlq/operations", "", &all); len(all.Operations) != 0 || sc.ready(sc.dlq()) != 3 || !s.ready() || sc.consumers(sc.queue()) != 1 {
		t.Errorf("%+v, %d parked, ready: %v", all, sc.ready(sc.dlq()), s.ready())
	}
}

// TestDeadLetterAPIWithoutAQueue: a topology that discards, and a broker that is away.
func TestDeadLetterAPIWithoutAQueue(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	p := sc.prefix
	sc.with("TOPOLOGY", "dead-letter", "QUEUE", p+".q", "BINDINGS", p+":order.*", "DEAD_LETTER", "disabled")
	c := sc.run().api("")
	for _, path := range []string{"/dlq", "/dlq/messages", "/dlq/groups", "/dlq/operations", "/admin/dlq/queues", "/admin/dlq/queues/" + p + ".q.dlq/messages"} {
		c.want(404, "GET", path, "", nil)
	}
	c.want(404, "POST", "/dlq/redrive", `{"all":true}`, nil)

	away := start(t, newScene(t).envWith("SIDECAR_AMQP_URL", "amqp://guest:canary-secret@"+freeAddr(t)+"/")).api("")
	for _, path := range []string{"/dlq", "/dlq/messages", "/admin/dlq/queues"} {
		if code, header, text := away.ask("GET", path, ""); code != 503 || header.Get("Retry-After") == "" || strings.Contains(text, "canary-secret") {
			t.Errorf("GET %s: %d %s", path, code, text)
		}
	}
	away.want(503, "POST", "/dlq/redrive", `{"all":true}`, nil)
	away.want(200, "GET", "/dlq/operations", "", nil)
}

// TestEventStream: counters, depths and operations as they move.
func TestEventStream(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0")
	sc.app.on("bad", status(500))
	s := sc.run()
	c := s.api("")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.control+"/events", nil)
	res, err := (&http.Client{Transport: plain.Transport}).Do(req)
	if err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(res, err)
	}
	defer res.Body.Close()
	sc.send("bad", "good")
	var id string
	name, seen := "", map[string]bool{}
	for lines := bufio.NewScanner(res.Body); len(seen) < 3; {
		if !lines.Scan() {
			t.Fatalf("the stream ended after %v: %v", seen, lines.Err())
		}
		field, data, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "event":
			name = data
		case field == "data" && name == "flow":
			c.document.Schema(t, "FlowEvent", []byte(data))
			var f struct {
				Totals struct{ Settled map[string]int }
				Depths []struct {
					Kind  string
					Ready int
				}
			}
			if err := json.Unmarshal([]byte(data), &f); err != nil {
				t.Fatal(err)
			}
			seen["totals"] = seen["totals"] || f.Totals.Settled["ack"] == 1 && f.Totals.Settled["park"] == 1
			for _, d := range f.Depths {
				if d.Kind == "dlq" && d.Ready == 1 && id == "" {
					seen["depths"] = true
					id = c.begin("/dlq/redrive", `{"all":true}`).ID
				}
			}
			for k, v := range seen {
				if !v {
					delete(seen, k)
				}
			}
		case field == "data" && name == "operation":
			c.document.Schema(t, "Operation", []byte(data))
			if strings.Contains(data, id) && strings.Contains(data, `"succeeded"`) {
				seen["operation"] = true
			}
		}
	}
	// The sidecar stops, and the stream with it: cleanly.
	s.signal(15)
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	if code := s.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
