package dispatch

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

var update = flag.Bool("update", false, "rewrite the table of answers in docs/batches.md")

// idsOfTable are the ids of the messages in the table: the second one is the index of the first.
var idsOfTable = []string{"a", "0", ""}

const allDone, others = "all done", "; the others are done"

// TestAnswersInOtherNotations: verdicts in a text that is not JSON are not understood, and no message is acked. A warning, at
// most one a minute, shows such an answer.
func TestAnswersInOtherNotations(t *testing.T) {
	t.Parallel()
	for _, body := range inOtherNotations {
		line := 1 + strings.Count(body[:len(body)-len(strings.TrimLeft(body, blanks))], "\n")
		wantSaid(t, body, "failed: line "+itoa(line)+": verdicts in a text that is not JSON", undeclared)
	}
	var log apptest.Log
	answer := apptest.Full(200, "[{&quot;index&quot;:0,&quot;status&quot;:503}]", "Content-Type: text/html")
	s := apptest.Listen(t, apptest.Answer(answer))
	target := newTarget(t, s.URL, inBatches("jsonl"), func(o *Options) { o.Logger = log.Logger() })
	for range 2 {
		dispatchAll(t, target, samples(2)...)
	}
	if n := len(log.Lines("answer not understood", "messages=2", "[{&quot;index&quot;")); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}

// TestAnswersThatAreCutOff: the part of an answer that is not read may hold verdicts, except in an HTML document.
func TestAnswersThatAreCutOff(t *testing.T) {
	t.Parallel()
	const verdicts = `[{"index":0,"status":503}]`
	tooLong, atLimit := "failed: more than "+itoa(int(answerLimit(3)))+" bytes, which may hold verdicts on 3 messages", int(answerLimit(3))
	for body, want := range map[string]string{
		strings.Repeat("log line\n", 9000) + verdicts:                      tooLong,
		"OK " + strings.Repeat("y", 80000) + "\n" + verdicts:               tooLong,
		"OK " + verdicts + strings.Repeat(" ", 1<<20):                      tooLong,
		"x" + strings.Repeat(" ", 1<<20) + "OK":                            tooLong,
		strings.Repeat("\n", 80000) + verdicts:                             tooLong,
		"<br />\n<b>Warning</b>: " + strings.Repeat("y", 80000) + verdicts: tooLong,
		strings.Repeat("7 ", 50000) + verdicts:                             tooLong,
		"\n<!DOCTYPE html><p>" + strings.Repeat("y", 80000) + "</p>":       allDone,
		"<html>" + strings.Repeat("index: 0, status: 503\n", 9000):         allDone,
		"OK " + strings.Repeat("y", atLimit-len("OK ")):                    allDone, // all of it is read
		"OK " + strings.Repeat("y", atLimit-len(verdicts)-3) + verdicts:    "failed: line 1: verdicts in a text that is not JSON",
	} {
		wantSaid(t, body, want, undeclared)
	}
}

// TestCompressedAnswers: what a compressed answer says is unknown, unless it is a page or has no body.
func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	const gzip, failed = "200 OK\r\nContent-Encoding: gzip\r\nContent-Type: ", "failed: compressed, which may hide verdicts"
	for kind, want := range map[string]string{
		gzip + "application/json": failed, gzip + "application/jsonl": failed, gzip + "application/vnd.app+json; a=b": failed, gzip + "text/plain": failed,
		gzip + "text/plain\r\nContent-Type: text/html": failed, "200 OK\r\nContent-Encoding: br": failed, gzip + "text/html": allDone,
	} {
		wantSaid(t, "\x1f\x8b", want, []string{kind})
		wantSaid(t, "", allDone, []string{kind})
	}
	wantSaid(t, "\x1f\x8b"+strings.Repeat("y", 80000), allDone, []string{gzip + "text/html"})
	wantSaid(t, " \n{}", allDone, []string{"200 OK\r\nContent-Encoding: identity"})
}

// TestIdentifiersOfABatch: an identifier names the messages that it can name by the ids that the app sees. If it may mean
// another message, no message is acked.
func TestIdentifiersOfABatch(t *testing.T) {
	t.Parallel()
	const index = "failed: item 1: an identifier that is the id of one message and the index of another"
	const kinds = "failed: item 1: an identifier that is an id of one message and another kind of id of another message"
	const unknown = "failed: item 1: an identifier of no message of the batch"
	const both = "0: retry, 1: retry in cloudevents" // where both events have that id; elsewhere kinds
	event := func(id, key string, value any) *message.Message {
		return &message.Message{MessageID: id, Headers: amqp.Table{key: value}}
	}
	body := func(id, kind, body string) *message.Message {
		return &message.Message{MessageID: id, ContentType: kind, Body: []byte(body)}
	}
	const structured = "application/cloudevents+json; charset=utf-8"
	m1, none := &message.Message{MessageID: "m1"}, &message.Message{Body: []byte("x")}
	for name, c := range map[string]struct {
		ms   []*message.Message
		want map[string]string
	}{
		"a header": {[]*message.Message{event("m0", "cloudEvents:id", "1"), m1, none}, map[string]string{
			"1": index, "0": "0: retry", "m0": "0: retry", "m1": "1: retry", "2": "2: retry", digest(none): "2: retry", "x": unknown,
		}},
		"a number":               {[]*message.Message{event("m0", "cloudEvents_ID", int64(1)), m1}, map[string]string{"1": index}},
		"an id":                  {[]*message.Message{event("m0", "cloudEvents_id", "e0"), m1}, map[string]string{"e0": "0: retry", "m1": "1: retry"}},
		"in a body":              {[]*message.Message{body("m0", structured, `{"id":"1","data":{"id":"m1"}}`), m1}, map[string]string{"1": index, "m1": "1: retry", "0": "0: retry"}},
		"in a body, as a number": {[]*message.Message{body("", structured, ` {"x":"id", "\u0069d": 1}`), m1}, map[string]string{"1": index}},
		"in a body, twice":       {[]*message.Message{body("", structured, `{"id":"x","id":"m1"}`), m1}, map[string]string{"m1": both, "x": unknown}},
		"in a body, long":        {[]*message.Message{body("", structured, `{"id":"`+strings.Repeat("x", maxValue)+`"}`), m1}, map[string]string{strings.Repeat("x", maxValue): unknown}},
		"no event":               {[]*message.Message{body("m0", "application/json", `{"id":"1"}`), m1}, map[string]string{"1": "1: retry"}},
		"broken":                 {[]*message.Message{body("m0", structured, `{"id":"1"`), m1}, map[string]string{"1": "1: retry", "m0": "0: retry"}},
		"of two events":          {[]*message.Message{event("m0", "cloudEvents:id", "c0"), {MessageID: "c0"}, none}, map[string]string{"c0": both}},
		"of another message":     {[]*message.Message{event("m0", "cloudEvents:id", "c0"), event("c0", "cloudEvents:id", "c1")}, map[string]string{"c0": kinds, "c1": "1: retry", "m0": "0: retry"}},
		"of another, before":     {[]*message.Message{event("c0", "cloudEvents:id", "c1"), event("m0", "cloudEvents:id", "c0")}, map[string]string{"c0": kinds}},
		"encoded as a header":    {[]*message.Message{{MessageID: "a b%"}, event("m1", "cloudEvents:id", "c 1")}, map[string]string{"a b%": "0: retry", "a b%25": unknown, "c 1": "1: retry", "c%201": unknown}},
		"the id of several":      {messagesOf([]string{"x", "b", "x"}), map[string]string{"x": "0: retry, 2: retry", "b": "1: retry"}},
		"its own index":          {messagesOf([]string{"0", "1", "1"}), map[string]string{"0": "0: retry", "1": "1: retry, 2: retry", "2": "2: retry"}},
		"the index of another":   {messagesOf([]string{"1", "2", "3", "7"}), map[string]string{"1": index, "2": index, "3": index, "0": "0: retry", "7": "3: retry"}},
		"an index with a zero":   {messagesOf([]string{"01", ""}), map[string]string{"01": "0: retry", "1": "1: retry"}},
		"not UTF-8":              {[]*message.Message{{MessageID: "\xff"}, {MessageID: "\ufffd"}, none}, map[string]string{"\ufffd": "0: retry, 1: retry"}},
	} {
		for identifier, want := range c.want {
			answer, err := json.Marshal(map[string]any{"batchItemFailures": []any{map[string]string{"itemIdentifier": identifier}}})
			for format := range formats {
				want := strings.TrimSuffix(want, " in cloudevents")
				if c.want[identifier] == both && format != "cloudevents" {
					want = kinds
				}
				got := inWords(readFor(t, newReader(format), c.ms, "200 OK", string(answer), 1<<10))
				if got = strings.TrimSuffix(got, others); err != nil || got != want {
					t.Errorf("%s, %s: %q is %s, want %s (%v)", format, name, identifier, got, want, err)
				}
			}
		}
	}
}

// TestUnknownDispositionOfABatch: what an app wanted for all messages with an unknown word is not "all done".
func TestUnknownDispositionOfABatch(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"prak", `"park"`, "", ",", "prak, prak"} {
		for _, body := range []string{"", "OK", `[{"index":0,"status":503}]`} {
			got := inWords(readFor(t, newReader(), messagesOf(idsOfTable), "200 OK\r\nAmqp-Disposition: "+word, body, 1<<10))
			if got != "failed: an unknown word in Amqp-Disposition" {
				t.Errorf("%q with %q: got %s", word, body, got)
			}
		}
	}
}

// declaring are the answers that must hold verdicts, plain ones the others.
var (
	declaring = []string{
		"207 M", "207 M\r\nContent-Type: application/json", "207 M\r\nContent-Type: text/plain",
		"200 OK\r\nContent-Type: application/jsonl", "202 OK\r\nContent-Type: Application/X-NDJSON; charset=utf-8", "200 OK\r\nContent-Type: application/json-lines",
		"200 OK\r\nContent-Type: application/x-jsonlines", "200 OK\r\nContent-Type: application/ndjson", "200 OK\r\nContent-Type: text/x-jsonl", "200 OK\r\nContent-Type: application/x-ldjson",
		"200 OK\r\nContent-Type: application/jsonlines ; a=b", "200 OK\r\nContent-Type: \"application/jsonl\"", "200 OK\r\nContent-Type: application/vnd.a+jsonl; charset=utf-8", "200 OK\r\nContent-Type: application/x-json-lines",
		"200 OK\r\nContent-Type: application/jsonl\r\nContent-Type: text/plain", "200 OK\r\nContent-Type: text/plain\r\nContent-Type: application/jsonl", "200 OK\r\nContent-Type: application/json, application/jsonl",
	}
	undeclared = []string{
		"200 OK", "200 OK\r\nContent-Type: application/json", "201 C\r\nContent-Type: APPLICATION/Vnd.App+JSON;charset=utf-8", "202 A\r\nContent-Type: text/plain; charset=utf-8",
		"200 OK\r\nContent-Type: text/html", "206 P\r\nContent-Type: application/octet-stream", "203 N\r\nContent-Type:", "200 OK\r\nContent-Type: application/json-seq",
		"200 OK\r\nContent-Type: text/plain\r\nContent-Type: application/json",
	}
)

// TestTableOfAnswers: every body means the same whatever the type of the answer says, but for the answers that must hold verdicts.
// The table of docs/batches.md shows the same rows.
func TestTableOfAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range tableOfAnswers {
		declared := row.declared
		if declared == "" {
			declared = row.other
		}
		wantSaid(t, row.body, declared, declaring)
		wantSaid(t, row.body, row.other, undeclared)
	}
	for body, want := range otherAnswers {
		wantSaid(t, body, want, undeclared)
	}
	for _, body := range onlyOther {
		wantSaid(t, body, allDone, undeclared)
	}
	page, err := os.ReadFile("../../docs/batches.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- written by: go test ./internal/dispatch -run TestTableOfAnswers -update -->\n", "<!-- end of the table -->"
	before, rest, _ := strings.Cut(string(page), begin)
	_, after, found := strings.Cut(rest, end)
	want := before + begin + renderAnswers() + end + after
	switch {
	case !found:
		t.Fatal("docs/batches.md has no place for the table")
	case *update:
		if err := os.WriteFile("../../docs/batches.md", []byte(want), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
	case want != string(page):
		t.Error("the table of docs/batches.md is another one: -update writes it")
	}
}

func renderAnswers() string {
	var b strings.Builder
	b.WriteString("| body | 207, or a type of JSON Lines | any other 2xx, whatever its type |\n|---|---|---|\n")
	for _, row := range tableOfAnswers {
		body := "(none)"
		if row.body != "" {
			body = "`" + strings.ReplaceAll(strings.TrimSuffix(row.body, "\n"), "\n", "` line feed `") + "`"
		}
		declared := row.declared
		if declared == "" {
			declared = "the same"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", body, declared, row.other)
	}
	return b.String()
}

func wantSaid(t *testing.T, body, want string, kinds []string) {
	t.Helper()
	for _, kind := range kinds {
		whole, each := readFor(t, newReader(), messagesOf(idsOfTable), kind, body, 1<<10)
		if got := inWords(whole, each); got != want {
			t.Errorf("%q of %.300q: got %s, want %s", kind, body, got, want)
		}
		if each == nil && (whole.Status != 0 || whole.RetryAfter >= 0 || whole.Failure != message.FailureMalformed) {
			t.Errorf("%q of %.300q: %+v", kind, body, whole)
		}
	}
}

func messagesOf(ids []string) (ms []*message.Message) {
	ms = samples(len(ids))
	for i, id := range ids {
		ms[i].MessageID = id
	}
	return ms
}

func newReader(format ...string) *Target {
	return &Target{o: Options{BatchFormat: strings.Join(format, ""), RetryAfterMax: time.Minute, Logger: slog.New(slog.DiscardHandler)}}
}

// inWords is what the outcomes of a batch are in the table.
func inWords(whole message.Outcome, each []message.Outcome) string {
	if each == nil {
		return "failed: " + strings.TrimPrefix(fmt.Sprint(whole.Err), "malformed answer: ")
	}
	var not []string
	for i, o := range each {
		switch {
		case o.Disposition != message.DispositionNone && o.Disposition != message.DispositionAck:
			not = append(not, fmt.Sprintf("%d: %s", i, message.Dispositions[o.Disposition-message.DispositionAck]))
		case !o.OK():
			not = append(not, fmt.Sprintf("%d: %d", i, o.Status))
		}
	}
	switch len(not) {
	case 0:
		return allDone
	case len(each):
		return strings.Join(not, ", ")
	}
	return strings.Join(not, ", ") + others
}
