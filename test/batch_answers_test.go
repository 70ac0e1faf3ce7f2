package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"sidecar/internal/apptest"
)

// failed is a message of a POST, and whether the app fails it.
type failed struct {
	index int
	id    string
	fails bool
}

// verdictsOf writes what an app says of the messages; "" is not written.
func verdictsOf(of []failed, say func(failed) string) string {
	var all []string
	for _, m := range of {
		if text := say(m); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, ",")
}

func onlyFailed(format string) func(failed) string {
	return func(m failed) string {
		if !m.fails {
			return ""
		}
		return fmt.Sprintf(format, m.index)
	}
}

// batchAnswers are answers of usual frameworks, with their header lines; unread is whether they cannot be read.
var batchAnswers = map[string]struct {
	status int
	header []string
	body   func([]failed) string
	unread bool
}{
	"jsonify": {200, []string{"Content-Type: application/json"}, func(of []failed) string {
		return "[" + verdictsOf(of, onlyFailed(`{"index":%d,"status":503}`)) + "]\n"
	}, false},
	"res.json": {200, []string{"Content-Type: application/json; charset=utf-8", `ETag: W/"2-x"`}, func(of []failed) string {
		return `{"results":[` + verdictsOf(of, func(m failed) string {
			return fmt.Sprintf(`{"index":%d,"status":%d}`, m.index, map[bool]int{true: 503, false: 200}[m.fails])
		}) + "]}"
	}, false},
	"Dapr": {200, []string{"Content-Type: application/json"}, func(of []failed) string {
		return `{"statuses":[` + verdictsOf(of, func(m failed) string {
			return fmt.Sprintf(`{"entryId":%q,"status":%q}`, m.id, map[bool]string{true: "RETRY", false: "SUCCESS"}[m.fails])
		}) + "]}"
	}, false},
	"json-lines, two types": {200, []string{"Content-Type: application/json-lines", "Content-Type: text/plain"}, func(of []failed) string {
		return strings.ReplaceAll(verdictsOf(of, onlyFailed(`{"index":%d,"status":503}`)), "},", "}\n")
	}, false},
	"text": {200, []string{"Content-Type: text/plain"}, func(of []failed) string {
		return strings.ReplaceAll(verdictsOf(of, onlyFailed(`{"index":%d,"status":503}`)), "},", "}\n")
	}, false},
	"207 with failures": {207, []string{"Content-Type: application/json"}, func(of []failed) string {
		return `{"batchItemFailures":[` + verdictsOf(of, onlyFailed(`{"itemIdentifier":"%d"}`)) + "]}"
	}, false},
	"a status of none": {200, []string{"Content-Type: application/json"}, func(of []failed) string {
		if verdictsOf(of, onlyFailed("%d")) != "" {
			return `{"status":503}`
		}
		return `{"status":"success"}`
	}, true},
	"names twice": {200, []string{"Content-Type: application/json"}, func(of []failed) string {
		return "[" + verdictsOf(of, onlyFailed(`{"index":%d,"status":500,"status":200}`)) + "]"
	}, true},
	"a list that is cut off": {200, nil, func(of []failed) string {
		if text := verdictsOf(of, onlyFailed(`{"index":%d,"status":503}`)); text != "" {
			return "[" + text[:len(text)-5]
		}
		return "[]"
	}, true},
	"escaped by a template": {200, []string{"Content-Type: text/html"}, func(of []failed) string {
		return "[" + verdictsOf(of, onlyFailed(`{&quot;index&quot;:%d,&quot;status&quot;:503}`)) + "]"
	}, true},
	"behind a long text": {200, []string{"Content-Type: text/plain"}, func(of []failed) string {
		if text := verdictsOf(of, onlyFailed(`{"index":%d,"status":503}`)); text != "" {
			return strings.Repeat("a line of a log\n", 8000) + "[" + text + "]"
		}
		return "OK"
	}, true},
	"a blank in a field name": {200, nil, nil, false},
}

// TestFailuresInABatchAreNotAcked: whatever the form in which an app says that messages of a batch failed, these and no
// others are parked. If it cannot be read, there is one warning that shows it.
func TestFailuresInABatchAreNotAcked(t *testing.T) {
	t.Parallel()
	for name, c := range batchAnswers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("BATCH_SIZE", "8", "BATCH_WAIT", "1s", "CONCURRENCY", "2", "MAX_RETRIES", "0").seed()
			sc.app.Otherwise(func(r *apptest.Request) apptest.Reply {
				of := messagesIn(r.Body)
				if c.body == nil {
					if strings.Contains(string(r.Body), `"bad-`) {
						return apptest.Say(apptest.Status(200, "Amqp-Disposition : park"))
					}
					return apptest.Say(apptest.Status(200))
				}
				return apptest.Say(apptest.Full(c.status, c.body(of), c.header...))
			})
			want := map[string]bool{}
			for i := range 32 {
				id := fmt.Sprintf("good-%d", i)
				if i%10 == 5 {
					id = fmt.Sprintf("bad-%d", i)
					want[id] = true
				}
				sc.send(id)
			}
			s := sc.run()
			eventually(t, "all messages are settled", func() bool {
				return len(s.log.find(func(e entry) bool { return e.is("settled") })) >= 32
			})
			sc.settledAll(s, len(want))
			got := map[string]bool{}
			for _, d := range sc.take(sc.dlq(), len(want)) {
				got[d.MessageId] = true
			}
			if !maps.Equal(got, want) {
				t.Errorf("parked %v, want %v", got, want)
			}
			warnings := s.log.find(func(e entry) bool { return e.is("answer not understood") })
			if n := len(warnings); (n == 1) != c.unread || n > 1 {
				t.Errorf("%d warnings about an answer", n)
			}
			for _, e := range warnings {
				if !strings.HasPrefix(e.text("answer"), c.body([]failed{{0, "", true}})[:8]) {
					t.Errorf("the warning shows %q", e.text("answer"))
				}
			}
		})
	}
}

// messagesIn reads a request of JSON Lines.
func messagesIn(body []byte) (of []failed) {
	for line := range bytes.Lines(body) {
		var m struct {
			ID string `json:"message_id"`
		}
		if json.Unmarshal(line, &m) == nil {
			of = append(of, failed{len(of), m.ID, strings.HasPrefix(m.ID, "bad-")})
		}
	}
	return of
}
