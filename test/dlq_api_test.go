package test

import (
	"encoding/json"
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
func (c *control) ask(method, path, body string) (int, http.Header, string) {
	c.t.Helper()
	var asked *http.Request
	code, header, text := c.do(method, c.control, path, func(r *http.Request) {
		c.authorize(r)
		if body != "" {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Type", "application/json")
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
	ID, State, Error string
	Progress         struct{ Done int }
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
	Messages []struct {
		Ref       string
		MessageID string `json:"message_id"`
	}
}

// TestDeadLetterAPI: a redrive that fails, one that succeeds, and one that SIGTERM ends have a line in the log each, with who
// did it and from where. Package admin has every path with its answers.
func TestDeadLetterAPI(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0")
	sc.app.otherwise(func(*delivery) answer { return status(503) })
	s := sc.run()
	c := s.api("")
	sc.send(numbered("late", 6)...)
	eventually(t, "all parked", func() bool { return sc.ready(sc.dlq()) == 6 })
	const late = `{"all":true,"canary":2,"rate":"100/s"}`
	if op := c.over(c.begin("/dlq/redrive", late).ID); op.State != "failed" || !strings.Contains(op.Error, "canary") {
		t.Errorf("the app still fails: %+v", op)
	}
	eventually(t, "the canaries are parked again", func() bool { return sc.ready(sc.dlq()) == 6 })
	sc.app.otherwise(func(*delivery) answer { return status(200) })
	if op := c.over(c.begin("/dlq/redrive", late).ID); op.State != "succeeded" || op.Progress.Done != 6 {
		t.Errorf("%+v", op)
	}
	s.awaitAcked(numbered("late", 6)...)
	stopInTheMiddle(sc, c)
	operations := audited(s.log.String())
	if len(operations) != 3 {
		t.Fatalf("%d operations in the log: %v", len(operations), operations)
	}
	host, _ := os.Hostname()
	for i, want := range []string{"failed", "succeeded", "cancelled"} {
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
