package dispatch

import (
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// heardTooLong is what an attempt shows whose verdict may be behind what is read.
var heardTooLong = said{unknown: true}

// longBodies are bodies at and beyond the bound, and what they say.
func longBodies() map[string]struct {
	body string
	want said
} {
	pad := func(n int) string { return strings.Repeat("p", n) }
	spaces := func(n int) string { return strings.Repeat(" ", n) }
	const over = 70000
	exact := func(status string, n int) string {
		return `{"pad":"` + pad(n-len(`{"pad":"","status":""}`)-len(status)) + `","status":"` + status + `"}`
	}
	return map[string]struct {
		body string
		want said
	}{
		"ends at the bound":        {exact("RETRY", http1.MaxBody), saidRetry},
		"ends one byte behind it":  {exact("RETRY", http1.MaxBody+1), heardTooLong},
		"DROP behind the padding":  {exact("DROP", over), heardTooLong},
		"RETRY before the padding": {`{"status":"RETRY","pad":"` + pad(over) + `"}`, heardTooLong},
		"RETRY, then spaces":       {`{"status":"RETRY"}` + spaces(over), saidRetry},
		"DROP, then text":          {`{"status":"DROP"}` + pad(over), saidDrop},
		"spaces alone":             {spaces(over), heardTooLong},
		"spaces, then text":        {spaces(http1.MaxBody-1) + pad(over), saidNothing},
		"text":                     {pad(over), saidNothing},
		"an array":                 {`[{"status":"RETRY"},"` + pad(over) + `"]`, saidNothing},
		"broken JSON":              {`{"status":"RETRY",}` + pad(over), saidNothing},
	}
}

func wantLong(t *testing.T, how string, o message.Outcome, want said) {
	t.Helper()
	if got := heard(o); got != want {
		t.Errorf("%s: got %+v (%v), want %+v", how, got, o.Err, want)
	} else if want == heardTooLong {
		wantFailure(t, o, message.FailureMalformed, "too large for SIDECAR_RESPONSE_DIALECT=dapr: over 64 KiB")
	} else {
		wantStatus(t, o, 200)
	}
}

// What cannot be read to its end is a failed attempt, unless it has said everything or cannot say anything, however it
// is sent. Without the dialect the status counts. DaprAnswer, asked about the same body, says the same.
func TestDaprLongBody(t *testing.T) {
	t.Parallel()
	for name, row := range longBodies() {
		for framing, raw := range framings(row.body) {
			wantLong(t, name+" by "+framing, answered(t, "HTTP/1.1 200 OK\r\n"+raw, dapr), row.want)
			wantLong(t, name+" by "+framing+", off", answered(t, "HTTP/1.1 200 OK\r\n"+raw), saidNothing)
		}
		end := apptest.AnswerAndClose("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + row.body)
		wantLong(t, name+" until the end", scripted(t, end, dapr), row.want)

		o := message.Outcome{Status: 200, RetryAfter: -1}
		DaprAnswer([]byte(row.body), &o)
		wantLong(t, name+" explained", o, row.want)
	}
	tiny := strings.Repeat("1\r\np\r\n", 30_000) // more framing than the bound
	o := answered(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"pad\":\"\r\n"+tiny+"2\r\n\"}\r\n0\r\n\r\n", dapr)
	wantLong(t, "tiny chunks", o, heardTooLong)
}

// An app that sends the header has said everything, and other statuses are not asked for a body.
func TestDaprLongBodyThatDoesNotCount(t *testing.T) {
	t.Parallel()
	long := `{"pad":"` + strings.Repeat("p", http1.MaxBody) + `"}`
	for name, row := range map[string]struct {
		line string
		want said
		code int
	}{
		"header": {"200 OK\r\nAmqp-Disposition: ack", said{d: message.DispositionAck}, 200},
		"404":    {"404 No", saidNothing, 404},
	} {
		for framing, raw := range framings(long) {
			o := answered(t, "HTTP/1.1 "+row.line+"\r\n"+raw, dapr)
			wantStatus(t, o, row.code)
			if got := heard(o); got != row.want {
				t.Errorf("%s by %s: got %+v, want %+v", name, framing, got, row.want)
			}
		}
	}
	for framing, raw := range framings(long) {
		o := answered(t, "HTTP/1.1 200 OK\r\nRetry-After: 7\r\nAmqp-Reason: why\r\nContent-Type: application/problem+json\r\n"+raw, dapr)
		wantFailure(t, o, message.FailureMalformed, "over 64 KiB")
		if o.RetryAfter >= 0 || o.Problem != nil || o.Detail != "why" {
			t.Errorf("by %s: a failed attempt keeps %v of an answer", framing, o)
		}
	}
}
