package test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// sentMessage is a message of another library: of sent.json, which scripts/producers.sh record writes, or of
// documented.json, which is written by hand.
type sentMessage struct {
	Producer, Version, Source string
	Message                   json.RawMessage
}

// producersRecord is one of these files.
type producersRecord struct {
	Recorded, Broker string
	Sent             []sentMessage
}

// readProducers reads one of these files.
func readProducers(t *testing.T, file string) (r producersRecord) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("producers/"+file))(t), &r))
	return r
}

// TestProducersDoc: docs/producers.md says what was recorded, with the versions and the date.
func TestProducersDoc(t *testing.T) {
	t.Parallel()
	doc := string(must.Get(os.ReadFile("../docs/producers.md"))(t))
	r := readProducers(t, "sent.json")
	lines := []string{fmt.Sprintf("Recorded on %s with RabbitMQ %s", r.Recorded, r.Broker)}
	for i := range r.Sent {
		lines = append(lines, fmt.Sprintf("\n| %s | %s | %s |", r.Sent[i].Producer, r.Sent[i].Version, properties(t, r.Sent[i].Message)))
	}
	d := readProducers(t, "documented.json")
	for i := range d.Sent {
		lines = append(lines, fmt.Sprintf("\n| [%s](%s) | %s |", d.Sent[i].Producer, d.Sent[i].Source, properties(t, d.Sent[i].Message)))
	}
	for _, line := range lines {
		if !strings.Contains(doc, line) {
			t.Errorf("docs/producers.md does not have %s", line)
		}
	}
}

// properties is the cell of the table that says what a message sets: the short values, and the names of the others.
func properties(t *testing.T, message []byte) string {
	t.Helper()
	var fields map[string]json.RawMessage
	must.Do(t, json.Unmarshal(message, &fields))
	var cell []string
	for _, name := range []string{
		"content_type", "content_encoding", "delivery_mode", "type", "message_id", "correlation_id", "reply_to", "timestamp", "headers",
	} {
		switch v := fields[name]; {
		case v == nil:
		case strings.HasPrefix(name, "content") || name == "delivery_mode" || name == "type":
			cell = append(cell, "`"+name+"` "+strings.Trim(string(v), `"`))
		default:
			cell = append(cell, "`"+name+"`")
		}
	}
	return cmp.Or(strings.Join(cell, ", "), "–")
}
