package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
	c := newTestCall(invocation{stdout: &out}, "show")
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

// TestChooseSubscription: a name chooses a queue; an unknown one is refused with the nearest; an action needs one queue.
func TestChooseSubscription(t *testing.T) {
	t.Parallel()
	environ := append([]string{"SIDECAR_SUBSCRIPTIONS=orders,refunds"}, nowhere...)
	for _, c := range []struct{ subscription, want, err string }{
		{"", "orders refunds", "this is for one dead-letter queue: choose the subscription, one of orders, refunds (--subscription, over HTTP ?subscription=)"},
		{"refunds", "refunds", ""},
		{"refund", "", `no subscription "refund"; did you mean refunds?`},
		{"zzz", "", `no subscription "zzz"; there are orders, refunds`},
	} {
		call := newTestCall(invocation{environ: environ}, "redrive")
		call.subscription = c.subscription
		chosen, err := call.open()
		if got := strings.Join(chosen.Subscriptions(), " "); got != c.want {
			t.Errorf("%s: %s", c.subscription, got)
		}
		if err == nil {
			_, err = call.openOne()
		}
		if (err == nil) != (c.err == "") || err != nil && (!errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: %v", c.subscription, err)
		}
	}
	wantCall(t, nowhere, []string{"dlq", "list", "--subscription", "orders"}, 64, "", "subscriptions have no names")
	wantCall(t, nowhere, []string{"dlq", "list", "--subscription", ""}, 64, "", "must not be empty")
}

// TestSubscriptionColumn: lines name the subscription where there are names, and only there.
func TestSubscriptionColumn(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		var out bytes.Buffer
		call := newTestCall(invocation{stdout: &out}, "list")
		call.named = named
		table := call.table([]column{{title: "REF"}})
		must.Do(t, call.line(table, nil, "orders", []string{"1"}))
		must.Do(t, call.endTable(table, nil, "1 of 1"))
		must.Do(t, call.out.Flush())
		want := []string{"REF", "1", "1", "of", "1"}
		if named {
			want = []string{"SUBSCRIPTION", "REF", "orders", "1", "1", "of", "1"}
		}
		if got := strings.Fields(out.String()); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	}
}

// metered runs a meter for so many seconds, in each of which a hundred messages are read.
func metered(t *testing.T, width, seconds int) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := meter{w: &out, done: "redriven", width: width, began: time.Now(), shown: time.Now()} // it finds no terminal
		for i := range seconds {
			m.report(deadletter.Progress{Total: 10_000, Scanned: 100 * i, Matched: 50 * i, Done: 50 * i})
			time.Sleep(time.Second)
		}
		m.stop()
		text = out.String()
	})
	return text
}

func TestMeterWithoutATerminal(t *testing.T) {
	t.Parallel()
	if got := metered(t, 0, 9); got != "" {
		t.Errorf("after nine seconds: %q", got)
	}
	got := metered(t, 0, 25)
	want := " 10%  500 redriven, 50/s, 1000 of 10000 read, 1m30s left\n 20%  1000 redriven, 50/s, 2000 of 10000 read, 1m20s left\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMeterAfterACanary: the rate and the time left are those since the canary ended.
func TestMeterAfterACanary(t *testing.T) {
	t.Parallel()
	at := time.Unix(1e9, 0)
	p := deadletter.Progress{Total: 20_000, Scanned: 1000, Done: 1000, Canary: deadletter.CanaryProgress{Sent: 1000, Good: 999}}
	m := meter{done: "redriven", began: at}
	m.text(&p, at.Add(time.Minute))
	p.Scanned, p.Done, p.Canary.Good, p.Canary.Done = 1200, 1200, 1000, true
	if got, want := m.text(&p, at.Add(70*time.Second)), "  6%  1200 redriven, 20/s, 1200 of 20000 read, 15m40s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMeterText: the numbers of a large queue need most of 80 columns; the bar has what they leave.
func TestMeterText(t *testing.T) {
	t.Parallel()
	at := time.Unix(1e9, 0)
	large := deadletter.Progress{Total: 1_000_000, Scanned: 500_000, Matched: 412_000, Done: 412_000}
	for want, c := range map[string]struct {
		width, limit int
		p            deadletter.Progress
	}{
		"canary: waiting for 2 of 3 verdicts":                                                         {0, 0, deadletter.Progress{Total: 9, Scanned: 3, Done: 3, Canary: deadletter.CanaryProgress{Sent: 3, Good: 1}}},
		" 50%  40 redriven, 4/s, 50 of 100 read, 10s left":                                            {0, 0, deadletter.Progress{Total: 100, Scanned: 50, Matched: 40, Done: 40, Canary: deadletter.CanaryProgress{Sent: 3, Good: 3, Done: true}}},
		"[############------------]  50%  40 redriven, 4/s, 50 of 100 read, 10s left":                 {80, 0, deadletter.Progress{Total: 100, Scanned: 50, Matched: 40, Done: 40}},
		" 80%  40 redriven, 4/s, 50 of 100 read, 2s left":                                             {0, 50, deadletter.Progress{Total: 100, Scanned: 50, Matched: 40, Done: 40}},
		"  0%  0 redriven, 0/s, 0 of 100 read":                                                        {0, 0, deadletter.Progress{Total: 100}},
		"40 redriven, 4/s":                                                                            {80, 0, deadletter.Progress{Scanned: 40, Matched: 40, Done: 40}},
		"[########################] 100%  40 redriven, 4/s, 100 of 100 read, 0s left":                 {80, 0, deadletter.Progress{Total: 100, Scanned: 100, Done: 40}},
		"[############------------]  50%  412000 redriven, 41200/s, 500000 of 1000000 read, 10s left": {100, 0, large},
		"[######------]  50%  412000 redriven, 41200/s, 500000 of 1000000 read, 10s left":             {80, 0, large},
		" 50%  412000 redriven, 41200/s, 500000 of 1000000 read, 10s left":                            {70, 0, large},
	} {
		m := meter{width: c.width, limit: c.limit, done: "redriven", began: at}
		if got := m.text(&c.p, at.Add(10*time.Second)); got != want || c.width > 0 && len(got) >= c.width {
			t.Errorf("%d columns: %q, want %q", c.width, got, want)
		}
	}
}
