package dispatch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

// eachHostile calls f with each message, and with what a batch of it and others has become.
func eachHostile(t *testing.T, format string, f func(name string, m *message.Message, r *http.Request), changes ...func(*Options)) {
	t.Helper()
	for name, m := range hostileMessages() {
		raw, whole, each := postAll(t, format, []*message.Message{sample(), m, sample()}, changes...)
		if each[0].Truncated != 0 || whole.Truncated != each[1].Truncated || each[2].Truncated != 0 {
			t.Errorf("%s: %d headers are left out of all, %d of the message", name, whole.Truncated, each[1].Truncated)
		}
		r := &http.Request{Header: raw.Header, Body: io.NopCloser(bytes.NewReader(raw.Body))}
		r.Header.Set("Truncated", itoa(whole.Truncated))
		f(name, m, r)
	}
}

// An event has the attributes that a request with the message alone has in binary mode, as far as their names are
// allowed, and the same data.
func TestEventsAreRequests(t *testing.T) {
	t.Parallel()
	eachHostile(t, "cloudevents", func(name string, m *message.Message, r *http.Request) {
		var events []map[string]any
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &events); err != nil || len(events) != 3 || !json.Valid(body) {
			t.Fatalf("%s: %v in %q", name, err, body)
		}
		event := events[1]
		if name == "structured" {
			if len(event) != 1 || event["id"] != "e-1" {
				t.Errorf("%s: %v", name, event)
			}
			return
		}
		if event["deliveryattempt"] != float64(m.RetryCount+1) {
			t.Errorf("%s: deliveryattempt is %v", name, event["deliveryattempt"])
		}
		for _, attr := range []string{"specversion", "id", "source", "type"} {
			if _, isText := event[attr].(string); !isText {
				t.Errorf("%s: %s is %v", name, attr, event[attr])
			}
		}
		alone, _ := post(t, m, cloudEvents)
		for key, values := range alone.Header {
			attr, isAttribute := strings.CutPrefix(strings.ToLower(key), "ce-")
			if !isAttribute || strings.Contains(attr, "-") || attr == "data" || attr == "deliveryattempt" || name == "many headers" {
				continue
			}
			want, err := url.PathUnescape(values[0])
			if attr == "source" && m.Headers["cloudEvents:source"] == nil {
				want, err = values[0], nil
			}
			if got := event[attr]; err != nil || got != strings.ToValidUTF8(want, "\uFFFD") {
				t.Errorf("%s: %s is %q, want %q (%v)", name, attr, got, want, err)
			}
		}
		if kind, _ := event["datacontenttype"].(string); kind != alone.Header.Get("Content-Type") {
			t.Errorf("%s: content type %q, want %q", name, kind, alone.Header.Get("Content-Type"))
		}
		wantData(t, name, event, m)
	})
}

// wantData checks that the data of an event is the body.
func wantData(t *testing.T, name string, event map[string]any, m *message.Message) {
	t.Helper()
	data, hasData := event["data"]
	coded, isBinary := event["data_base64"].(string)
	got, err := base64.StdEncoding.DecodeString(coded)
	kind, _ := event["datacontenttype"].(string)
	switch {
	case hasData && isBinary, len(m.Body) == 0 && (hasData || isBinary):
		t.Errorf("%s: data twice, or of nothing: %v", name, event)
	case hasData && !strings.Contains(strings.ToLower(kind), "text/"):
		var body any
		if err = json.Unmarshal(m.Body, &body); err != nil || fmt.Sprint(body) != fmt.Sprint(data) {
			t.Errorf("%s: data %v of %q (%v)", name, data, m.Body, err)
		}
	case hasData && data != string(m.Body), !hasData && (err != nil || !bytes.Equal(got, m.Body)):
		t.Errorf("%s: data %q, %q of %q", name, data, got, m.Body)
	}
}

func TestEventsLeaveOut(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"event": 0, "event, names": 9, "long values": 3, "texts": 1, "sample": 0, "everything": 0} {
		_, whole, _ := postAll(t, "cloudevents", []*message.Message{hostileMessages()[name]})
		if whole.Truncated != want {
			t.Errorf("%s: %d headers are left out, want %d", name, whole.Truncated, want)
		}
	}
	many := withHeaders(sample(), amqp.Table{})
	for i := range maxAttributes + 10 {
		many.Headers["cloudEvents_x"+itoa(i)] = "y"
	}
	r, whole, _ := postAll(t, "cloudevents", []*message.Message{many})
	if n := bytes.Count(r.Body, []byte(`:"y"`)); n != maxAttributes || whole.Truncated != 10 {
		t.Errorf("%d attributes, %d left out", n, whole.Truncated)
	}
	r, _, _ = postAll(t, "cloudevents", []*message.Message{hostileMessages()["many headers"]})
	if n := bytes.Count(r.Body, []byte(`":"\u0001`)); n == 0 || n > maxHeaderBytes/600 {
		t.Errorf("%d attributes of 600 bytes", n)
	}
}

// The trace context of the message's span takes the place of the event's own, and what a message before left out is not
// counted again.
func TestEventOfATrace(t *testing.T) {
	t.Parallel()
	m := hostileMessages()["event"]
	m.Trace = message.TraceContext{Traceparent: "00-1-2-03"}
	r, _, _ := postAll(t, "cloudevents", []*message.Message{m})
	if bytes.Count(r.Body, []byte(`"traceparent":`)) != 1 || !bytes.Contains(r.Body, []byte(`"traceparent":"00-1-2-03"`)) {
		t.Errorf("%s", r.Body)
	}
	for format := range formats {
		b := batch{table: amqp.Table{}, part: request{leftOut: 5}}
		if b.encode(t.Context(), newTarget(t, "http://127.0.0.1:1/", inBatches(format)), samples(1)); b.leftOut[0] != 0 {
			t.Errorf("%s: %d headers are left out", format, b.leftOut[0])
		}
	}
}

// With structured mode every body is an event.
func TestEventsOfEnvelopes(t *testing.T) {
	t.Parallel()
	m := sample()
	m.ContentType, m.Body = "text/plain", []byte(`{"id":"e-1"}`)
	r, _, _ := postAll(t, "cloudevents", []*message.Message{m, sample()}, func(o *Options) { o.Envelopes = true })
	if got := string(r.Body); got != `[{"id":"e-1"},{"n":1}]` {
		t.Error(got)
	}
}

// No format takes more room than was made for it: a buffer that grows is memory that nothing bounds.
func TestRoom(t *testing.T) { //nolint:paralleltest // no other batch may use the buffers
	for format := range formats {
		for _, change := range []func(*Options){func(*Options) {}, cloudEvents} {
			target := newTarget(t, "http://127.0.0.1:1/", inBatches(format), change)
			for name, m := range hostileMessages() {
				for _, n := range []int{1, 50} {
					b := batch{table: amqp.Table{}}
					b.encode(t.Context(), target, slices.Repeat([]*message.Message{m}, n))
					if int64(cap(b.out)) != b.taken-4*answerLimit(n) {
						t.Errorf("%s, %s: %d bytes for %d messages, room for %d", format, name, cap(b.out), n, b.taken-4*answerLimit(n))
					}
				}
			}
		}
	}
}

// TestIDsInRequests: the id that an app reads of a message in a request names that message, or the batch failed.
func TestIDsInRequests(t *testing.T) {
	t.Parallel()
	for format := range formats {
		for name, m := range hostileMessages() {
			ms := []*message.Message{sample(), m, {Queue: "q"}}
			r, _, _ := postAll(t, format, ms, cloudEvents)
			id := idsIn(t, format, r)[1]
			answer, err := json.Marshal(map[string]any{"batchItemFailures": []any{map[string]string{"itemIdentifier": id}}})
			if err != nil || id == "" {
				continue
			}
			whole, each := readFor(t, newReader(format), ms, "200 OK", string(answer), 1<<10)
			if each == nil || each[1].Disposition != message.DispositionRetry {
				t.Errorf("%s, %s: %q: %+v, %+v", format, name, id, whole, each)
			}
		}
	}
}

// idsIn returns the id in a request of each message.
func idsIn(t *testing.T, format string, r *apptest.Request) (ids []string) {
	t.Helper()
	body := string(r.Body)
	if format == "jsonl" {
		body = "[" + strings.ReplaceAll(strings.TrimSuffix(body, "\n"), "\n", ",") + "]"
	}
	var items []map[string]any
	if err := json.Unmarshal([]byte(body), &items); err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		id, _ := item[map[string]string{"jsonl": "message_id", "cloudevents": "id"}[format]].(string)
		ids = append(ids, id)
	}
	return ids
}
