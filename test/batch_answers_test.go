package test

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"sidecar/internal/apptest"
)

// TestFailuresInABatchAreNotAcked: whatever the form in which an app says that messages of a batch failed, these and no
// others are parked. If it cannot be read, there is one warning that shows it.
func TestFailuresInABatchAreNotAcked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status           int
		header           string
		open, each, shut string
		unread           bool
	}{
		"list":                  {200, "Content-Type: application/json", "[", `{"index":%d,"status":503}`, "]\n", false},
		"207 with failures":     {207, "Content-Type: application/json", `{"batchItemFailures":[`, `{"itemIdentifier":"%d"}`, "]}", false},
		"escaped by a template": {200, "Content-Type: text/html", "[", `{&quot;index&quot;:%d,&quot;status&quot;:503}`, "]", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("BATCH_SIZE", "8", "BATCH_WAIT", "1s", "CONCURRENCY", "2", "MAX_RETRIES", "0").seed()
			sc.app.Otherwise(func(r *apptest.Request) apptest.Reply {
				return apptest.Say(apptest.Full(c.status, c.open+failuresIn(r.Body, c.each)+c.shut, c.header))
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
				if !strings.HasPrefix(e.text("answer"), c.open+c.each[:7]) {
					t.Errorf("the warning shows %q", e.text("answer"))
				}
			}
		})
	}
}

// failuresIn are the bad messages of a request of JSON Lines, in the format, which has %d for the number of the line.
func failuresIn(body []byte, format string) string {
	var all []string
	for i, line := range bytes.Split(body, []byte("\n")) {
		if bytes.Contains(line, []byte(`"message_id":"bad-`)) {
			all = append(all, fmt.Sprintf(format, i))
		}
	}
	return strings.Join(all, ",")
}
