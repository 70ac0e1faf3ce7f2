package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// heardOf is what an outcome says in short.
func heardOf(o message.Outcome) string {
	pause := -1.0
	if o.RetryAfter >= 0 {
		pause = o.RetryAfter.Seconds()
	}
	b, _ := json.Marshal([]any{o.Status, o.Disposition, o.Unknown, o.Detail, pause})
	return string(b)
}

// TestVerdicts: what a verdict says beside its status is the outcome of its message; what the headers say holds for the
// messages without a verdict.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	const done, retried = `[207,0,false,"",-1]`, `[207,2,false,"batchItemFailures",-1]`
	for name, row := range map[string]struct {
		headers, body string
		want          [3]string
	}{
		"all of it":            {"", `{"index":2,"status":503,"retry_after":5,"disposition":"park","reason":"a\n\u001bb"}`, [3]string{done, done, `[503,4,false,"a b",5]`}},
		"a part of a second":   {"", `{"index":0,"status":500,"retry_after":0.25,"reason":null}`, [3]string{`[500,0,false,"",0.25]`, done, done}},
		"a word and a status":  {"", `{"index":0,"status":500,"disposition":"explode"}`, [3]string{`[500,0,true,"",-1]`, done, done}},
		"a long pause":         {"", `{"index":0,"status":503,"retry_after":1e300}`, [3]string{`[503,0,false,"",60]`, done, done}},
		"dispositions":         {"", `[{"index":0,"disposition":"ack"},{"index":1,"disposition":"Requeue"},{"index":2,"disposition":"discard"}]`, [3]string{`[207,1,false,"",-1]`, `[207,3,false,"",-1]`, `[207,5,false,"",-1]`}},
		"the outermost states": {"", `[{"index":0,"status":100},{"index":1,"status":599}]`, [3]string{`[100,0,false,"",-1]`, `[599,0,false,"",-1]`, done}},
		"a long reason":        {"", `{"index":0,"status":500,"reason":"` + strings.Repeat("r", 300) + `"}`, [3]string{`[500,0,false,"` + strings.Repeat("r", maxReason) + `",-1]`, done, done}},
		"Lambda":               {"", `{"batchItemFailures":[{"itemIdentifier":"1","x":1},{"itemIdentifier":"m-1"}]}`, [3]string{done, retried, done}},
		"beside headers":       {"\r\nAmqp-Reason: r\r\nRetry-After: 3", `{"index":1,"status":500}`, [3]string{`[207,0,false,"r",3]`, `[500,0,false,"",-1]`, `[207,0,false,"r",3]`}},
	} {
		whole, each := readFor(t, newReader(), samples(3), "207 M"+row.headers, row.body, 1<<10)
		if each == nil {
			t.Errorf("%s: %+v", name, whole)
		}
		for i, o := range each {
			if got := heardOf(o); got != row.want[i] {
				t.Errorf("%s: message %d is %s, want %s", name, i, got, row.want[i])
			}
		}
	}
}

// The longest answer that is read has a verdict of 1 KiB on each message.
func TestLongVerdicts(t *testing.T) {
	t.Parallel()
	const n = 100
	var body strings.Builder
	for i := range n {
		line := `{"index":` + itoa(i) + `,"status":500,"reason":"`
		body.WriteString(line + strings.Repeat("r", 1023-len(line)-2) + `"}` + "\n")
	}
	full := strings.Repeat("\n", http1.MaxBody) + body.String()
	for framing, raw := range framings(full) {
		_, each := answeredAll(t, "HTTP/1.1 207 M\r\n"+raw, n)
		if len(each) != n || each[n-1].Status != 500 {
			t.Errorf("by %s: %d outcomes", framing, len(each))
		}
	}
	for _, raw := range framings(full + " ") {
		whole, _ := answeredAll(t, "HTTP/1.1 207 M\r\n"+raw, n)
		wantFailure(t, whole, message.FailureMalformed, "more than 167936 bytes")
	}
}

// A cut between two lines does not show where nothing but the end of the connection ends an answer.
func TestVerdictsWithoutLength(t *testing.T) {
	t.Parallel()
	const noLength = "neither a Content-Length nor chunks"
	for answer, says := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Type: application/jsonl\r\n\r\n{\"index\":0,\"status\":503}\n": noLength,
		"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n":                                noLength,
		"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n {\"batchItemFailures\":[]}":     "",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":                "a Transfer-Encoding that is not understood",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":          "a Transfer-Encoding that is not understood",
		"HTTP/1.0 207 OK\r\n\r\n":                 noLength,
		"HTTP/1.0 200 OK\r\n\r\n{\"ok\":true}":    "",
		"HTTP/1.0 200 OK\r\n\r\n":                 "",
		"HTTP/1.0 200 OK\r\n\r\n{\"batchItemFail": "cut short",
	} {
		s := apptest.Listen(t, apptest.AnswerAndClose(answer))
		whole, each := dispatchAll(t, newTarget(t, s.URL, inBatches("jsonl")), samples(2)...)
		if says != "" {
			wantFailed(t, whole, each, message.FailureMalformed, says)
		} else if each == nil {
			t.Errorf("%q: %+v", answer, whole)
		}
	}
}

// Half an answer is no answer where it may have verdicts.
func TestVerdictsThatBreakOff(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.AnswerAndClose("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"index\":0"))
	whole, each := dispatchAll(t, newTarget(t, s.URL, inBatches("jsonl")), samples(2)...)
	wantFailed(t, whole, each, message.FailureReset, "within the answer's body")
	silent := apptest.Listen(t, answerAndWait("HTTP/1.1 207 M\r\nContent-Length: 40\r\n\r\n{"))
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { stop(errors.New("drain")) })
	whole, each = newTarget(t, silent.URL, inBatches("jsonl")).DispatchBatch(ctx, samples(2), message.TraceContext{})
	wantFailed(t, whole, each, message.FailureInterrupted, "drain")
}
