package dispatch

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

var update = flag.Bool("update", false, "rewrite the table of answers in docs/batches.md")

// idsOfTable are the ids of the messages in the table: the second one is the index of the first.
var idsOfTable = []string{"a", "0", ""}

const allDone, others = "all done", "; the others are done"

// tableOfAnswers is the table of docs/batches.md: bodies, and what they say about three messages in an answer that must
// hold verdicts and in any other 2xx. An empty declared is the same as other.
var tableOfAnswers = []struct{ body, declared, other string }{
	{``, "", allDone},
	{`OK`, "failed: line 1: not JSON", allDone},
	{`<html>…</html>`, "failed: line 1: not JSON", allDone},
	{`{"ok":true}`, "failed: line 1: neither an index from 0 to 2 nor an identifier", allDone},
	{`{"status":"success"}`, "failed: line 1: neither an index from 0 to 2 nor an identifier", allDone},
	{`[{"id":7,"status":"new"}]`, "failed: line 1: not a JSON object of a verdict", allDone},
	{`[]`, "", allDone},
	{`{"index":1,"status":503}`, "", "1: 503" + others},
	{"{\"index\":0,\"status\":503}\n{\"index\":2,\"disposition\":\"park\"}\n", "", "0: 503, 2: park" + others},
	{`[{"index":0,"status":503},{"index":1,"status":200}]`, "", "0: 503" + others},
	{`{"results":[{"index":0,"status":503}],"count":3}`, "", "0: 503" + others},
	{`{"result":{"index":0,"status":503}}`, "", "0: 503" + others},
	{`[{"itemIdentifier":"a","status":422}]`, "", "0: 422" + others},
	{`{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"2"}]}`, "", "0: retry, 2: retry" + others},
	{`{"batchItemFailures":[]}`, "", allDone},
	{`{"data":{"batchItemFailures":[{"itemIdentifier":"1"}]}}`, "", "1: retry" + others},
	{`{"batchItemFailures":[{"itemIdentifier":"0"}]}`, "", "failed: item 1: an identifier that is the id of one message and the index of another"},
	{`{"batchItemFailures":[{"itemIdentifier":"b"}]}`, "", "failed: item 1: an identifier of no message of the batch"},
	{`{"statuses":[{"entryId":"a","status":"SUCCESS"},{"entryId":"1","status":"RETRY"},{"entryId":"2","status":"DROP"}]}`, "", "1: retry, 2: park" + others},
	{`{"statuses":[{"entryId":"a","status":"SUCCESS"}]}`, "", "failed: statuses without one of every message"},
	{`{"index":0,"status":"failed"}`, "", "failed: line 1: status is a text that is not SUCCESS, RETRY or DROP"},
	{`{"index":3,"status":503}`, "", "failed: line 1: neither an index from 0 to 2 nor an identifier"},
	{`{"index":0,"status":500,"status":200}`, "", "failed: line 1: status is there twice"},
	{"{\"index\":0,\"status\":500}\n{\"index\":0,\"status\":200}\n", "", "failed: line 2: a second verdict on a message"},
	{`{"status":503}`, "failed: line 1: neither an index from 0 to 2 nor an identifier", "failed: a status from 300 to 599 or a disposition that names no message"},
	{`[{"id":7,"status":404}]`, "failed: line 1: not a JSON object of a verdict", "failed: a status from 300 to 599 or a disposition that names no message"},
	{`{"error":{"status":500}}`, "failed: line 1: neither an index from 0 to 2 nor an identifier", "failed: a status from 300 to 599 or a disposition that names no message"},
	{`{"results":{"error":{"status":500}}}`, "failed: line 1: neither an index from 0 to 2 nor an identifier", allDone},
	{`{"results":[{"index":0,"status":503}],"errors":[{"index":1,"status":500}]}`, "", "failed: verdicts in several places"},
	{`{"results":[{"index":0,"status":503}],"status":500}`, "", "failed: a status from 300 to 599 or a disposition that names no message"},
	{`[{"index":0,"status":503},{"ind`, "", "failed: line 1: JSON that is cut short or nested too deeply, which may hide verdicts"},
	{`[{'index': 0, 'status': 503}]`, "", "failed: line 1: verdicts in a text that is not JSON"},
	{"OK\n{\"index\":0,\"status\":503}", "", "failed: line 1: verdicts in a text that is not JSON"},
	{`[{&quot;index&quot;:0,&quot;status&quot;:503}]`, "", "failed: line 1: verdicts in a text that is not JSON"},
	{"0%5Bindex%5D=0&0%5Bstatus%5D=503", "", "failed: line 1: verdicts in a text that is not JSON"},
	{`data: {"index":0,"status":503}`, "", "failed: line 1: verdicts in a text that is not JSON"},
	{`{"statusCode":200,"body":"{\"batchItemFailures\":[{\"itemIdentifier\":\"a\"}]}"}`, "failed: verdicts in a string of JSON", "failed: verdicts in a string of JSON"},
	{`[{"index":0,"status":200,"errors":[{"index":1,"status":500}]}]`, "", "failed: verdicts in several places"},
	{`{"disposition":"park"}`, "failed: line 1: neither an index from 0 to 2 nor an identifier", "failed: a status from 300 to 599 or a disposition that names no message"},
	{`{"data":{"results":[{"index":0,"status":503}]}}`, "failed: line 1: neither an index from 0 to 2 nor an identifier", allDone},
}

// otherAnswers are more bodies, with what they say in any 2xx.
var otherAnswers = map[string]string{
	"\ufeff[{\"index\":0,\"status\":503}]":                                                      "0: 503" + others,
	"\x1e{\"index\":0,\"status\":503}\n\x1e{\"index\":1,\"status\":500}\n":                      "0: 503, 1: 500" + others,
	"{\"index\":0,\"status\":503}\r\n\r\n{\"index\":1,\"status\":500}\r\n":                      "0: 503, 1: 500" + others,
	`{"index":0,"status":503}{"index":1,"status":500}`:                                          "0: 503, 1: 500" + others,
	"[\n  {\n    \"index\": 0,\n    \"status\": 503\n  }\n]\n":                                  "0: 503" + others,
	`"[{\"index\":0,\"status\":503}]"`:                                                          "0: 503" + others, // encoded twice
	`{"Index":0,"STATUS":503}`:                                                                  "0: 503" + others,
	`{"index":0,"st\u0061tus":503}`:                                                             "0: 503" + others,
	`[[{"index":0,"status":503}]]`:                                                              "0: 503" + others,
	`{"status":"partial","failed":1,"results":[{"index":0,"status":503}]}`:                      "0: 503" + others,
	`[{"index":0,"status":503,"error":{"status":503},"x":"{\"status\":500}"}]`:                  "0: 503" + others,
	`[{"index":0,"status":503,"reason":"[{\"index\":1,\"status\":500}]"}]`:                      "0: 503" + others,
	`{"index":0,"status":200,"error":{"status":500}}`:                                           allDone,
	`{"batchItemFailures":null}`:                                                                allDone,
	`{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"a"}]}`:                     "0: retry" + others,
	`[{"index":0,"status":"RETRY","reason":"r"},{"index":2,"status":"SUCCESS"}]`:                "0: retry" + others,
	`{"index":0,"status":"RETRY","disposition":"park"}`:                                         "0: park" + others,
	`{"statuses":[{"index":0,"status":503},{"index":1,"status":200},{"index":2,"status":200}]}`: "0: 503" + others,

	`{"index":99999999999999999999,"status":500}`:                                    "failed: line 1: index has a value of another type",
	`{"index":0,"status":99}`:                                                        "failed: line 1: status is not from 100 to 599",
	`{"index":0,"status":600,"disposition":"ack"}`:                                   "failed: line 1: status is not from 100 to 599",
	`{"index":0,"status":503,"retry_after":-1}`:                                      "failed: line 1: retry_after is negative",
	`{"index":0,"status":503,"retry_after":"5"}`:                                     "failed: line 1: retry_after has a value of another type",
	`{"index":0,"status":503,"retry_after":1e999}`:                                   "failed: line 1: retry_after has a value of another type",
	`{"index":0,"disposition":"secret"}`:                                             "failed: line 1: neither a status nor a known disposition",
	`{"batchItemFailures":{}}`:                                                       "failed: statuses or batchItemFailures that are not an array",
	`{"batchItemFailures":["a"]}`:                                                    "failed: item 1: not a JSON object of a verdict",
	`{"batchItemFailures":[{"itemIdentifier":"a"},{}]}`:                              "failed: item 2: neither an index from 0 to 2 nor an identifier",
	`{"batchItemFailures":[{"itemIdentifier":1}]}`:                                   "failed: item 1: itemIdentifier has a value of another type",
	`{"batchItemFailures":[{"itemIdentifier":"3"}]}`:                                 "failed: item 1: an identifier of no message of the batch",
	`{"batchItemFailures":[{"itemIdentifier":"+1"}]}`:                                "failed: item 1: an identifier of no message of the batch",
	`{"batchItemFailures":[` + strings.Repeat(`{"itemIdentifier":"a"},`, 3) + `{}]}`: "failed: item 4: more verdicts than messages",
	`{"index":0,"\u017ftatus":500,"status":200}`:                                     "failed: line 1: status is there twice",
	`{"index":0,"status":200,"disposition":"park, ack"}`:                             "failed: line 1: disposition has two different words",
	`{"index":0,"status":200,"disposition":"x, park"}`:                               "failed: line 1: disposition has two different words",
	`{"index":0,"status":200,"disposition":"park, park"}`:                            "0: park" + others,
	`{"index":0,"disposition":"park","disposition":"ack"}`:                           "failed: line 1: disposition is there twice",
	`{"index":0,"index":1,"status":500}`:                                             "failed: line 1: index is there twice",
	`{"batchItemFailures":[{"itemIdentifier":"a","itemIdentifier":"1"}]}`:            "failed: item 1: itemIdentifier is there twice",
	`{"batchItemFailures":[{"itemIdentifier":"a"}],"batchItemFailures":[]}`:          "failed: verdicts in several places",
	`{"batchItemFailures":[{"itemIdentifier":"a"}],"index":1,"status":200}`:          "failed: verdicts in several places",
	`{"index":1,"status":200,"results":[{"index":0,"status":500}]}`:                  "failed: verdicts in several places",
	`{"ok":true}` + "\n" + `[{"index":0,"status":503}]`:                              "failed: verdicts in several places",
	`{"index":0,"status":200}` + "\n" + `{"ok":true}`:                                "failed: line 2: neither an index from 0 to 2 nor an identifier",
	`[{"index":0,"status":503},7]`:                                                   "failed: item 2: not a JSON object of a verdict",
	`{"index":0.5,"status":503}`:                                                     "failed: line 1: index has a value of another type",
	`{"index":"0","status":503}`:                                                     "failed: line 1: index has a value of another type",
	`{"index":null,"status":null}`:                                                   "failed: line 1: index has a value of another type",
	`{"index":0,"entryId":null,"status":200}`:                                        "failed: line 1: entryId has a value of another type",
	`{"index":0,"status":503.0}`:                                                     "failed: line 1: status has a value of another type",
	`{"index":0,"status":"503"}`:                                                     "failed: line 1: status is a text that is not SUCCESS, RETRY or DROP",
	`{"index":0,"status":{"code":503}}`:                                              "failed: line 1: status has a value of another type",
	`{"index":0,"itemIdentifier":"a","status":503}`:                                  "failed: line 1: more than one of index, entryId and itemIdentifier",
	`[{"itemIdentifier":"a"}]`:                                                       "failed: item 1: neither a status nor a known disposition",
	`[{"itemIdentifier":"","status":503}]`:                                           "failed: item 1: an empty identifier",
	`[{"entryId":"a","status":"RETRY"}]`:                                             "failed: statuses without one of every message",
	`{"statuses":[]}`:                                                                "failed: statuses without one of every message",
	`{"statuses":null}`:                                                              "failed: statuses or batchItemFailures that are not an array",
	`{"batchItemFailures":[{"itemIdentifier":"00"}]}`:                                "failed: item 1: an identifier of no message of the batch",
	`{"batchItemFailures":[{"itemIdentifier":"a"}],"avg":NaN}`:                       "failed: line 1: verdicts in a text that is not JSON",
	`{"status":503,}`:                                                                "failed: line 1: verdicts in a text that is not JSON",
	"{\n\"index\":0,\"status\":503":                                                  "failed: line 2: JSON that is cut short or nested too deeply, which may hide verdicts",
	`{"x":` + strings.Repeat("[", 11000):                                             "failed: line 1: JSON that is cut short or nested too deeply, which may hide verdicts",
	`"[{\"index\":0,`:                                                                "failed: line 1: JSON that is cut short or nested too deeply, which may hide verdicts",
	`[{"index":0,"status":200,"errors":"[{\"index\":1,\"status\":500}]"}]`:           "failed: verdicts in a string of JSON",
	`["{\"index\":0,\"status\":503}"]`:                                               "failed: verdicts in a string of JSON",
	`"\"[{\\\"index\\\":0,\\\"status\\\":503}]\""`:                                   "failed: verdicts in a string of JSON",
	`["[{&quot;index&quot;:0,&quot;status&quot;:503}]"]`:                             "failed: verdicts in a string of JSON",
	`{"body":"%5B%7B%22index%22%3A0%2C%22status%22%3A503%7D%5D"}`:                    "failed: verdicts in a string of JSON",
	`{"body":"{\"error\":{\"status\":500}}"}`:                                        "failed: a status from 300 to 599 or a disposition that names no message",
	`{"status":300}`:                                                                 "failed: a status from 300 to 599 or a disposition that names no message",
	`{"status":599}`:                                                                 "failed: a status from 300 to 599 or a disposition that names no message",
	`[{"id":7,"disposition":"ack"}]`:                                                 "failed: a status from 300 to 599 or a disposition that names no message",
	strings.Repeat("[", 200) + `{"index":0,"status":503}` + strings.Repeat("]", 200): "failed: arrays that are nested too deeply, which may hide verdicts",
	"\x1f\x8b\x08":                            "failed: compressed without a Content-Encoding, which may hide verdicts",
	"[\x00\n\x00 \x00 \x00 \x00{\x00":         zeroByte,
	"\xff\xfe[\x00\n\x00 \x00 \x00 \x00{\x00": zeroByte,
	"\x00[\x00\n\x00 \x00 \x00 \x00{":         zeroByte,
	"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR":     zeroByte,
	"\x00\x00\x00[\x00\x00\x00{":              zeroByte,
}

// onlyOther are bodies that say nothing where no verdicts must be.
var onlyOther = []string{
	"100 % of &quot;orders&quot; &c.; 50%25, \\x41", `{"next":"/orders?status%3D503&index=0"}`, `<!doctype html>[{&quot;index&quot;:0,&quot;status&quot;:503}]`, "tel:%2B49&index=7",
	"{done}", "[INFO] indexed, status ok", `{"ok":true}x`, `7`, `true`, `"OK"`, `{"status":"503"}`, `{"status":299}`, `{"status":null}`, `{"status":600}`,
	`{"index":7}`, `{"id":7,"index":"orders"}`, `{"entryId":"x"}`, `{"statusCode":500}`, `["{}"]`, `{"statusCode":200,"body":"{\"ok\":true}"}`,
	`{"a":[{"b":[{"index":0,"status":503}]}]}`, `{"ok":true}{"ok":true}`,
	`{"message":"0%5Bindex%5D=0&0%5Bstatus%5D=503"}`, `{"message":"&lt;r&gt;&quot;index&quot;:0,&quot;status&quot;:503"}`, `{"message":"%"}`, `{"message":"%2"}`, `{"message":" "}`,
	"All orders are stored; the index is new: done. Status: fine", "<!DOCTYPE html><p>index: 0, status: 503", "\n<HTML lang=en>index=0 status=503", "<p>z-index: 1; status=1",
	`{"took":30,"errors":true,"items":[{"index":{"_index":"a","_id":"1","status":429,"error":{"type":"x"}}},{"index":{"_index":"a","status":201}}]}`,
}

// inOtherNotations are texts with verdicts that are not JSON.
var inOtherNotations = []string{
	"<br /><b>Warning</b>: x [{\"index\":0,\"status\":503}]", ")]}',\n[{\"index\":0,\"status\":503}]", `cb([{"index":0,"status":503}]);`, "// x\n[{\"index\":0,\"status\":503}]",
	"event: x\ndata: {\"index\":0,\"status\":503}\n\n", `[{index:0,status:503}]`, `[{:index=>0, :status=>503}]`, `[{"index"=>0, "status"=>503}]`, `[{'id': 0, 'x': None, 'status': 503}]`,
	`[NaN,{"id":0,"status":503}]`, "- index: 0\n  status: 503\n", "index: 0\ndisposition: park\n", "disposition: park", "status: 503", "batchItemFailures:\n- itemIdentifier: a\n",
	"\f[{\"index\":0,\"status\":503}]", "\u00a0[{\"index\":0,\"status\":503}]", "\n\ufeff[{\"index\":0,\"status\":503}]", "\ufeff\ufeff[{\"index\":0,\"status\":503}]",
	`OK {\"itemIdentifier\":\"a\",\"status\":\"RETRY\"}`, `OK {"batchItemFailures":[{"itemIdentifier":"a"}]}`, "Array ( [index] => 0 [status] => 503 )", "{index=0, status=503}", "[Verdict(entryId='a', status='RETRY')]",
	`[{&quot;index&quot;:0,&quot;status&quot;:503}]`, `<p>[{&#34;index&#34;:0,&#34;status&#34;:503}]</p>`, `{&#039;entryId&#x27;&#X3d;&gt;1, &apos;status&apos;&equals;&gt;503}`, `&lbrace;&quot;batchItemFailures&quot;&colon;[]}`,
	`%5B%7B%22index%22%3A0%2C%22status%22%3A503%7D%5D`, `%5b%7b%22status%22%3a+503%7d%5d`, "0%5Bindex%5D=0&0%5Bstatus%5D=503", "index=0&amp;status=503", "index=0&status=503", `"%5B%7B%22index%22%3A0%2C%22status%22%3A503%7D%5D"`,
	`[{\u0022index\u0022:0,\u0022status\u0022:503}]`, `x = "\x5B\x7B\x22index\x22:0,\x22status\x22:503\x7D\x5D"`, `{&quot;disposition&quot;: &quot;park&quot;}`, `{&quot;index&quot;,0}`,
	"{Index:0 Status:503}", "x {\"index\"\u00a0:\u00a00,\"status\"\u00a0: 503}",
}

const zeroByte = "failed: a zero byte, as in UTF-16, which may hide verdicts"

// TestAnswersInOtherNotations: verdicts in a text that is not JSON are not understood, and no message is acked.
func TestAnswersInOtherNotations(t *testing.T) {
	t.Parallel()
	for _, body := range inOtherNotations {
		line := 1 + strings.Count(body[:len(body)-len(strings.TrimLeft(body, blanks))], "\n")
		wantSaid(t, body, "failed: line "+itoa(line)+": verdicts in a text that is not JSON", undeclared)
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
		"encoded":                {[]*message.Message{{MessageID: "a b%"}, event("m1", "cloudEvents:id", "c 1")}, map[string]string{"a b%": "0: retry", "a b%25": "0: retry", "c 1": "1: retry", "c%201": "1: retry"}},
		"encoded like another":   {[]*message.Message{{MessageID: "%"}, {MessageID: "%25"}}, map[string]string{"%": "0: retry", "%25": kinds, "%2525": "1: retry"}},
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

var unreadable = regexp.MustCompile(`^malformed answer: ((line|item) \d+: )?(compressed, which may hide verdicts|compressed without a Content-Encoding, which may hide verdicts|a zero byte, as in UTF-16, which may hide verdicts|arrays that are nested too deeply, which may hide verdicts|verdicts in a string of JSON|neither a Content-Length nor chunks: verdicts may be missing|` +
	`more than \d+ bytes, which may hold verdicts on 3 messages|JSON that is cut short or nested too deeply, which may hide verdicts|verdicts in a text that is not JSON|not JSON|verdicts in several places|` +
	`a status from 300 to 599 or a disposition that names no message|not a JSON object of a verdict|(index|entryId|itemIdentifier|status|disposition|retry_after|reason) (is there twice|has a value of another type)|disposition has two different words|` +
	`statuses or batchItemFailures that are not an array|more verdicts than messages|statuses without one of every message|a second verdict on a message|more than one of index, entryId and itemIdentifier|` +
	`an empty identifier|neither an index from 0 to 2 nor an identifier|an identifier that is the id of one message and the index of another|an identifier that is an id of one message and another kind of id of another message|an identifier of no message of the batch|status is not from 100 to 599|` +
	`status is a text that is not SUCCESS, RETRY or DROP|neither a status nor a known disposition|retry_after is negative)$`)

// checkAnswer reads an answer of each kind with a verdict before it, behind it, and alone. Whatever is around the verdict,
// its message is not acked; an answer that cannot be read is an error of a closed set; and where a read ends makes no
// difference.
func checkAnswer(t *testing.T, body string, step int) {
	t.Helper()
	const failed = `{"index":1,"status":503}`
	for _, kind := range []string{declaring[0], declaring[3], undeclared[0], undeclared[1], undeclared[4], noLength, noLength + "\r\nContent-Type: application/jsonl"} {
		for _, answer := range []string{body, failed + "\n" + body, body + "\n" + failed} {
			whole, each := readFor(t, newReader(), messagesOf(idsOfTable), kind, answer, step)
			if each == nil && (whole.Failure != message.FailureMalformed || !unreadable.MatchString(whole.Err.Error())) {
				t.Fatalf("%s of %q: %+v", kind, answer, whole)
			}
			if each != nil && answer != body && !isPage([]byte(answer)) && isDone(each[1]) {
				t.Fatalf("%s of %q: the message is acked: %+v", kind, answer, each[1])
			}
			if got := inWords(readFor(t, newReader(), messagesOf(idsOfTable), kind, answer, 64<<10)); got != inWords(whole, each) {
				t.Fatalf("%s of %q in one piece: %s, in several: %s", kind, answer, got, inWords(whole, each))
			}
		}
	}
}

func isDone(o message.Outcome) bool {
	return o.Disposition == message.DispositionNone && o.OK() || o.Disposition == message.DispositionAck || o.Disposition == message.DispositionDiscard
}

// FuzzVerdicts reads a body as each kind of answer, in pieces of any size.
func FuzzVerdicts(f *testing.F) {
	for _, row := range tableOfAnswers {
		f.Add(row.body, uint8(255))
	}
	for body := range otherAnswers {
		f.Add(body, uint8(0))
	}
	for _, body := range append(slices.Concat(onlyOther, inOtherNotations), strings.Repeat("log line\n", 9000), "<html>"+strings.Repeat("x", 70000), strings.Repeat(" ", 70000)+"{}", `{"x":"`+strings.Repeat("x", 70000), "{\"index\":0,\"status\":500,\"reason\":\"\xff\"}", `{"batchItemFailures":[{"itemIdentifier":"`+"\xff"+`"}]}`) {
		f.Add(body, uint8(7))
	}
	f.Fuzz(func(t *testing.T, body string, step uint8) { checkAnswer(t, body, int(step)+1) })
}

// TestRandomAnswers is FuzzVerdicts with answers that look like verdicts.
func TestRandomAnswers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var b strings.Builder
		for range 1 + random.IntN(2)*random.IntN(3) {
			writeRandom(&b, random, 0)
			b.WriteString([]string{"", "\n", "\r\n\t", "\x1e", ","}[min(4, random.IntN(40)/9)])
		}
		body := b.String()
		if random.IntN(20) == 0 {
			body = body[:random.IntN(len(body)+1)]
		}
		checkAnswer(t, body, 1<<10)
	}
}

// writeRandom appends a value, mostly of verdicts and of what is around them.
func writeRandom(b *strings.Builder, random *rand.Rand, depth int) {
	scalars := []string{"0", "1", "2", "3", "200", "204", "299", "300", "503", "599", "600", "5e2", "503.0", "-1", `"0"`, `"1"`, `"2"`, `"a"`, `"SUCCESS"`, `"RETRY"`, `"DROP"`, `"ack"`, `"park"`, `"x"`, `""`, "null", "true", `"503"`}
	members := []string{"index", "index", "entryId", "itemIdentifier", "status", "status", "status", "disposition", "retry_after", "reason", "statuses", "batchItemFailures", "Status", `st\u0061tus`, "x", "results", "error"}
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	switch kind := random.IntN(10); {
	case depth > 5 || kind == 0:
		b.WriteString(pick(scalars))
	case kind < 3:
		b.WriteString("[")
		for i := range random.IntN(4) {
			if i > 0 {
				b.WriteString(",")
			}
			writeRandom(b, random, depth+1)
		}
		b.WriteString("]")
	case kind < 7: // a verdict
		fmt.Fprintf(b, `{%q:%s,"%s":%s}`, pick(members[:4]), pick([]string{"0", "1", "2", `"a"`, `"1"`, `"2"`}), pick(members[4:8]), pick(scalars))
	default:
		b.WriteString("{")
		for i := range random.IntN(4) {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(b, `"%s":`, pick(members))
			if random.IntN(2) == 0 {
				b.WriteString(pick(scalars))
			} else {
				writeRandom(b, random, depth+1)
			}
		}
		b.WriteString("}")
	}
}
