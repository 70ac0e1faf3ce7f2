package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

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
		Done   int
		Canary struct {
			Sent int
			Done bool
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
	Summary  struct{ Matched int }
	Messages []struct {
		Ref       string
		MessageID string `json:"message_id"`
	}
}

// TestDeadLetterAPI: understand what fails, send a canary, redrive a group, discard the rest, and stop in the middle of a
// redrive. Every operation has a line in the log.
func TestDeadLetterAPI(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0")
	sc.app.otherwise(func(d *delivery) answer {
		if strings.HasPrefix(d.ID, "broken") {
			return status(422)
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
			ID            string
			Status, Count int
		}
	}
	c.want(200, "GET", "/dlq/groups", "", &groups)
	if g := groups.Groups; len(g) != 2 || g[0].Status != 503 || g[0].Count != 6 || g[1].Status != 422 || g[1].Count != 3 {
		t.Fatalf("%+v", g)
	}
	var list apiPage
	c.want(200, "GET", "/dlq/messages?group="+groups.Groups[1].ID, "", &list)
	if list.Summary.Matched != 3 || !strings.HasPrefix(list.Messages[0].MessageID, "broken") {
		t.Errorf("%+v", list)
	}
	c.want(200, "GET", "/dlq/messages/"+list.Messages[0].Ref+"?body=true", "", nil)

	late := fmt.Sprintf(`{"filter":{"group":%q},"canary":2,"rate":"100/s"}`, groups.Groups[0].ID)
	op := c.over(c.begin("/dlq/redrive", late).ID)
	if op.State != "failed" || !strings.Contains(op.Error, "canary") || op.Progress.Canary.Sent != 2 {
		t.Errorf("the app still fails: %+v", op)
	}
	eventually(t, "the canaries are parked again", func() bool { return sc.ready(sc.dlq()) == 9 })
	sc.app.otherwise(func(*delivery) answer { return status(200) })
	op = c.over(c.begin("/dlq/redrive", late).ID)
	if op.State != "succeeded" || op.Progress.Done != 6 || !op.Progress.Canary.Done {
		t.Errorf("%+v", op)
	}
	s.awaitAcked(numbered("late", 6)...)

	var done struct{ Redriven, Remaining int }
	c.want(200, "POST", "/admin/dlq/queues/"+sc.dlq()+"/re-drive", `{"limit":1}`, &done) // the existing interface
	if n := s.metric("sidecar_redriven_total", `result="ok"`); done.Redriven != 1 || done.Remaining != 2 || n != 9 {
		t.Errorf("%+v; %v in the metrics", done, n)
	}
	op = c.over(c.begin("/dlq/discard", fmt.Sprintf(`{"all":true,"confirm":%q}`, sc.dlq())).ID)
	if op.Kind != "discard" || op.Progress.Done != 2 {
		t.Errorf("%+v", op)
	}
	stopInTheMiddle(sc, c)
	operations := audited(s.log.String())
	if len(operations) != 5 {
		t.Fatalf("%d operations in the log: %v", len(operations), operations)
	}
	host, _ := os.Hostname()
	for i, want := range []string{"failed", "succeeded", "succeeded", "succeeded", "cancelled"} {
		e := operations[i]
		if e.text("state") != want || e.text("by") != "api@"+host || e.text("queue") != sc.dlq() || e.text("operation") == "" ||
			e.text("peer") == "" {
			t.Errorf("operation %d: %v", i+1, e)
		}
	}
}

// stopInTheMiddle sends SIGTERM during a redrive, which ends at a safe point.
func stopInTheMiddle(sc *scene, c *control) {
	sc.t.Helper()
	c.want(200, "POST", "/pause", "", nil)
	sc.parkIDs(503, numbered("m", 50)...)
	op := c.begin("/dlq/redrive", `{"all":true,"rate":"5/s"}`)
	eventually(sc.t, "some were moved", func() bool { return sc.ready(sc.queue()) > 1 })
	c.stop()
	if parked, back := sc.ready(sc.dlq()), sc.ready(sc.queue()); parked+back != 50 || back < 2 || parked == 0 {
		sc.t.Errorf("%d parked, %d back", parked, back)
	}
	if !c.log.mentions(op.ID, `"state":"cancelled"`, "the sidecar stops") {
		sc.t.Errorf("the log does not say how it ended:\n%s", c.log.tail(10))
	}
}

// TestDeadLetterAPITokens: the tokens of the environment guard the listener, and are in no log.
func TestDeadLetterAPITokens(t *testing.T) {
	t.Parallel()
	const write, read = "canary-write-0123456789", "canary-read-0123456789"
	sc := newScene(t).with("CONTROL_TOKEN", write, "CONTROL_READ_TOKEN", read)
	s := sc.run()
	sc.parkIDs(503, "m-0")
	w, r := s.api(write), s.api(read)
	none, wrong := *w, *w
	none.bearer, wrong.bearer = "", "canary-wrong-0123456789"
	bodies := "/admin/dlq/queues/" + sc.dlq() + "/messages?body=true"
	for _, c := range []struct {
		by           *control
		want         int
		method, path string
	}{
		{r, 200, "GET", "/dlq/messages"}, {r, 403, "GET", bodies}, {r, 403, "POST", "/dlq/redrive"}, {r, 403, "POST", "/drain"},
		{w, 200, "GET", bodies},
		{&none, 401, "GET", "/dlq"}, {&none, 401, "POST", "/dlq/redrive"}, {&wrong, 401, "GET", "/events"}, {&wrong, 401, "POST", "/pause"},
	} {
		body := map[string]string{"POST": `{"all":true}`}[c.method]
		c.by.want(c.want, c.method, c.path, body, nil)
	}
	if sc.ready(sc.dlq()) != 1 || !s.ready() {
		t.Error("something has changed")
	}
	w.over(w.begin("/dlq/redrive", `{"all":true}`).ID)
	s.awaitOutcome("m-0", "ack")
	if r := command(t, sc.running(s), "drain"); r.code != 0 {
		t.Errorf("drain with the token in its environment: exit %d: %s", r.code, r.all())
	}
	for _, secret := range []string{write, read, wrong.bearer} {
		if s.log.mentions(secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
	if !s.log.mentions(`"msg":"control"`, `"action":"show bodies"`, `"scope":"write"`) {
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
	sc.parkIDs(503, "a", "b", "c")
	for _, r := range []struct {
		want               int
		method, path, body string
		header             [2]string
	}{
		{400, "GET", "/dlq/messages?limit=NaN", "", [2]string{}},
		{400, "POST", "/dlq/redrive", strings.Repeat(`{"filter":`, 10000), [2]string{}},
		{400, "POST", "/dlq/redrive", `{}`, [2]string{"X-Forwarded-For", "203.0.113.9"}},
		{403, "POST", "/dlq/redrive", `{"all":true}`, [2]string{"Origin", "http://evil.example"}},
		{403, "POST", "/pause", "", [2]string{"Sec-Fetch-Site", "cross-site"}},
		{404, "POST", "/admin/dlq/queues/" + sc.queue() + "/re-drive", "{}", [2]string{}},
		{405, "GET", "/drain", "", [2]string{}},
		{415, "POST", "/dlq/redrive", `{"all":true}`, [2]string{"Content-Type", "application/x-www-form-urlencoded"}},
		{421, "POST", "/pause", "", [2]string{"Host", "evil.example:9091"}},
	} {
		code, header, text := c.ask(r.method, r.path, r.body, func(q *http.Request) {
			if r.header[0] == "Host" {
				q.Host = r.header[1]
			} else if r.header[0] != "" {
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
	if sc.ready(sc.dlq()) != 3 || !s.ready() || sc.consumers(sc.queue()) != 1 {
		t.Errorf("%d parked, ready: %v", sc.ready(sc.dlq()), s.ready())
	}
}
