package test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/testkit/must"
)

// sentMessage is a message of another library: of sent.json, which scripts/producers.sh record writes, or of
// documented.json, which is written by hand.
type sentMessage struct {
	Producer, Version, Source string
	Message                   json.RawMessage
	publishing                amqp.Publishing
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
	for i := range r.Sent {
		var line amqpvalue.Line
		must.Do(t, line.Decode(slices.Clone(r.Sent[i].Message)))
		must.Do(t, line.Invalid)
		headers, _, err := line.Headers(func(string) bool { return false }, amqpvalue.MaxMemory)
		must.Do(t, err)
		m := &r.Sent[i].publishing
		*m, m.Headers = line.Msg, headers
		if line.Base64 != nil {
			m.Body = must.Get(base64.StdEncoding.DecodeString(string(line.Base64)))(t)
		}
	}
	return r
}

// arrival is how a request differs from one with the body as it was sent and `Content-Type: application/json`, without
// the other headers below.
type arrival struct {
	contentType     string
	contentEncoding string // Amqp-Content-Encoding
	amqpType        string
	timestamp       string
	section         int // bytes of AMQP 1.0 in front of the text
}

var arrivals = map[string]arrival{
	"amqplib-timestamp": {timestamp: "2026-02-25T06:13:20Z"}, // sent in milliseconds
	"celery":            {contentEncoding: "utf-8"},
	"kombu":             {contentEncoding: "utf-8"},
	"masstransit":       {contentType: "application/vnd.masstransit+json"},
	"messenger-json":    {timestamp: "2026-02-25T06:13:20Z"},
	"messenger-php":     {contentType: "text/plain", timestamp: "2026-02-25T06:13:20Z"},
	"php-amqp":          {contentType: "text/plain"},
	"proton-bytes":      {section: 5},
	"proton-dict":       {contentType: "application/octet-stream", amqpType: "amqp-1.0"},
	"proton-str":        {section: 5},
	"rabbitmq-client":   {timestamp: "2026-02-25T06:13:20Z"},
	"rhea-buffer":       {section: 5},
	"rhea-map":          {contentType: "application/octet-stream", amqpType: "amqp-1.0"},
	"rhea-string":       {section: 5},
	"spring-json":       {contentEncoding: "UTF-8"},
	"spring-string":     {contentType: "text/plain", contentEncoding: "UTF-8"},
}

func (a arrival) headers() map[string]string {
	return map[string]string{
		"Content-Type": cmp.Or(a.contentType, "application/json"), "Content-Encoding": "",
		"Amqp-Content-Encoding": a.contentEncoding, "Amqp-Type": a.amqpType, "Amqp-Timestamp": a.timestamp,
	}
}

// TestMessagesOfOtherLibraries: what the libraries of docs/producers.md send by default arrives as an app expects it. It is
// known by its id, which most of them do not set.
func TestMessagesOfOtherLibraries(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	list := slices.Concat(readProducers(t, "sent.json").Sent, readProducers(t, "documented.json").Sent)
	for i := range list {
		list[i].publishing.MessageId = list[i].Producer
		sc.sendMessage(list[i].publishing)
	}
	s := sc.run()
	for i := range list {
		name, sent := list[i].Producer, list[i].publishing.Body
		want, got := arrivals[name], sc.app.await(name, 1)[0]
		if !bytes.Equal(got.Body, sent[want.section:]) {
			t.Errorf("%s: the body is %q of %q", name, got.Body, sent)
		}
		for header, v := range want.headers() {
			if values := got.Header.Values(header); strings.Join(values, "|") != v {
				t.Errorf("%s: %s is %q, want %q", name, header, values, v)
			}
		}
	}
	sc.settledAll(s, 0)
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
