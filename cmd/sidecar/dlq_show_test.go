package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
)

// shown is what show prints.
func shown(t *testing.T, f *deadletter.Full) string {
	t.Helper()
	var out bytes.Buffer
	c := newCall(invocation{stdout: &out}, "sidecar dlq", subcommand{name: "show"})
	c.show(f, time.Unix(1e9, 0))
	must.Do(t, c.out.Flush())
	return out.String()
}

func TestShow(t *testing.T) {
	t.Parallel()
	got := shown(t, &deadletter.Full{
		View: deadletter.View{
			Ref: "0123456789abcdef", Group: "abc", Facts: deadletter.Facts{
				Position: 3, MessageID: "m-1", Reason: "max_retries", Status: 503, Error: "e", Detail: "d", Answer: "out of\n\tstock\x1b[2J\n",
				Problem: deadletter.Problem{Type: "urn:t", Title: "Closed", Detail: "on Sundays"}, RetryCount: 10, RedriveCount: 1,
				ParkedAt: time.Unix(1e9-60, 0), OriginalQueue: "q", OriginalExchange: "x", RoutingKey: "k", Foreign: true,
			},
		},
		Properties: amqpvalue.Properties{
			ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 4, CorrelationId: "c", ReplyTo: "r",
			Expiration: "60000", MessageId: "m-1", Timestamp: time.Unix(1e9, 0), Type: "ty", UserId: "u", AppId: "a",
		},
		Headers: amqpvalue.TypedTable{"n": int32(7), "s": "text\x1b[31m", "t": amqp.Table{"k": []any{int64(1), "x"}}, "b": []byte{1, 0xff}, "v": nil},
		Journey: []deadletter.Step{
			{Queue: "wait", Reason: "expired", Count: 10, At: time.Unix(1e9-100, 0), Exchange: "retry", RoutingKeys: []string{"retry"}},
			{Queue: "q", Reason: "rejected", Count: 1, Exchange: "x"},
		},
		Body: &deadletter.Body{Format: "text", Text: "line one\nline\x1b[2J two\n", Size: 2048, Truncated: true},
	})
	for _, want := range []string{
		"message id        m-1\n", "reference         0123456789abcdef\n", "position          3 from the head", "parked            2001-09-09T01:45:40Z (1m ago)\n",
		"reason            max_retries\n", "status            503\n", "error             e\n", "detail            d\n", "problem type      urn:t\n",
		"problem title     Closed\n", "problem detail    on Sundays\n", "retries           10\n", "redriven          1 time\n", "service's queue   q\n",
		"another service's message", `exchange "x", routing key "k"`, "group             abc\n", "\nanswer\nout of\n\tstock" + `\x1b[2J` + "\n\nproperties\n",
		"content type      text/plain\n", "content encoding  gzip\n", "delivery mode     2\n", "priority          4\n", "correlation id    c\n", "reply to          r\n",
		"expiration        60000\n", "timestamp         2001-09-09T01:46:40Z\n", "type              ty\n", "user id           u\n", "app id            a\n",
		"  b  binary  Af8=\n", "  n  int32   7\n", `  s  string  text\x1b[31m` + "\n", `  t  table   {"k":[1,"x"]}` + "\n", "  v  void",
		"  1. left q: rejected, 1 time; arrived by exchange \"x\"\n",
		"  2. left wait: expired, 10 times, at first 2001-09-09T01:45:00Z; arrived by exchange \"retry\" with key \"retry\"\n",
		"body (2.0 KiB, text, only its beginning: more with --max-body)\nline one\n" + `line\x1b[2J two` + "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("an escape sequence in %q", got)
	}
}

func TestShowOfAlmostNothing(t *testing.T) {
	t.Parallel()
	got := shown(t, &deadletter.Full{Body: &deadletter.Body{Format: "empty"}})
	for text, want := range map[string]bool{
		"message id        -\n": true, "reason            -\n": true, "body (0 B, empty)\n": true,
		"headers": false, "journey": false, "parked": false, "problem": false, "status": false, "1970": false,
	} {
		if strings.Contains(got, text) != want {
			t.Errorf("%q: want %v in\n%s", text, want, got)
		}
	}
	if got := shown(t, &deadletter.Full{}); strings.Contains(got, "body") {
		t.Errorf("a body that was not asked for:\n%s", got)
	}
}
