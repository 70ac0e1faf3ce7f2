package dispatch

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// noLength is the status line of an answer that ends where the connection does.
const noLength = "299 N"

// read returns what an answer of this kind with this body says of n messages.
func read(tb testing.TB, kind, body string, step, n int) (whole message.Outcome, each []message.Outcome) {
	tb.Helper()
	ms, leftOut := samples(n), make([]int, n)
	length := "\r\nContent-Length: " + itoa(len(body))
	if strings.HasPrefix(kind, noLength) {
		length = ""
	}
	raw := []byte("HTTP/1.1 " + kind + length + "\r\n\r\n" + body)
	x := newAttempt(&Target{}, time.Time{})
	defer x.release()
	x.exchange.Answer.Limit, x.answer.batch = answerLimit(n), true
	if err := x.exchange.Answer.Read(&trickle{raw, step}, &x.answer); err != nil {
		tb.Fatal(err)
	}
	x.answer.report(&x.exchange.Answer, &x.out, time.Minute)
	each = x.verdicts(ms, leftOut, time.Minute)
	return x.out, each
}

// Whatever an app says, reading it takes no more memory than was taken for it: all that was ever allocated is more than
// what is held at a time, which is a buffer that has grown to the answer's size.
func TestMemoryOfVerdicts(t *testing.T) { //nolint:paralleltest // measures what is allocated
	const lines, object = "207 M\r\nContent-Type: application/jsonl", "200 OK\r\nContent-Type: application/json"
	for _, n := range []int{1, 100, 1000} {
		limit := int(answerLimit(n))
		fill := func(start, part, end string) string {
			return start + strings.Repeat(part, (limit-len(start)-len(end))/len(part)) + end
		}
		for name, c := range map[string]struct{ kind, body string }{
			"blank lines":     {lines, fill("", "\n", "")},
			"a line":          {lines, fill(`{"index":0,"status":500,"x":"`, "x", `"}`)},
			"a reason":        {lines, fill(`{"index":0,"status":500,"reason":"`, `\u0001`, `"}`)},
			"a disposition":   {lines, fill(`{"index":0,"disposition":"`, `x`, `"}`)},
			"deep":            {lines, fill(`{"index":0,"status":500,"x":`, "[", "")},
			"deep, closed":    {lines, `{"index":0,"status":500,"x":` + strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + "}"},
			"numbers":         {lines, fill(`{"index":0,"status":500,"x":[`, "1,", "1]}")},
			"members":         {lines, fill(`{"index":0,"status":500`, `,"":{}`, "}")},
			"a number":        {lines, fill(`{"index":0,"status":500,"retry_after":`, "9", "}")},
			"empty items":     {object, fill(`{"batchItemFailures":[`, "{},", "{}]}")},
			"items":           {object, fill(`{"batchItemFailures":[`, `{"itemIdentifier":"0"},`, `{"itemIdentifier":"0"}]}`)},
			"lists":           {object, fill(`{`, `"batchItemFailures":[],`, `"":0}`)},
			"an identifier":   {object, fill(`{"batchItemFailures":[{"itemIdentifier":"`, "x", `"}]}`)},
			"a name":          {object, fill(`{"`, "x", `":0}`)},
			"an object, deep": {object, fill(`{"x":`, "[", "")},
			"not JSON":        {object, fill(`{"x":[`, "1,", "}")},
			"too long":        {object, strings.Repeat("{", 2*limit)},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			read(t, c.kind, c.body, 64<<10, n)
			runtime.ReadMemStats(&after)
			cost := after.TotalAlloc - before.TotalAlloc
			if bound := uint64(9*limit + n*1024 + 512<<10); cost > bound {
				t.Errorf("%s of %d bytes to %d messages: %d bytes allocated, the bound is %d", name, len(c.body), n, cost, bound)
			}
		}
	}
}

var unreadable = regexp.MustCompile(`^malformed answer: (compressed, which may hide verdicts|not a JSON object, and perhaps cut short|neither a Content-Length nor chunks: verdicts may be missing|batchItemFailures [a-zA-Z, ]+|` +
	`more batchItemFailures than messages|more than 68608 bytes, which may hold verdicts on 3 messages|line \d+: (not a JSON object of a verdict|` +
	`index is not that of one of the 3 messages|a second verdict on a message|status is not from 100 to 599|retry_after is negative|neither a status nor a known disposition))$`)

// FuzzVerdicts reads a body as each kind of answer, in pieces of any size. Either there is an outcome for each message, and
// then what the standard library finds in the same lines agrees with them, or an error of a closed set.
func FuzzVerdicts(f *testing.F) {
	for _, seed := range []string{
		"", "ok", "{}", `{"index":0,"status":503,"retry_after":5,"disposition":"park","reason":"r"}`, "\n{\"index\":1,\"disposition\":\"retry\"}\r\n\n{\"index\":2,\"status\":425}",
		`{"Index":0,"STATUS":200}`, `{"index":0,"index":1,"status":500}`, `{"index":0,"status":99}`, `{"index":1e0,"status":500}`, `{"index":3}`, `{"index":0,"disposition":"x"}`,
		`{"batchItemFailures":[{"itemIdentifier":"m-1"},{"itemIdentifier":"2"}]}`, `{"batchItemFailures":[{"itemIdentifier":""}]}`, `{"batchItemFailures":null}`,
		`{"a":[{"b":"]}"}],"batchItemFailures":[{"x":{},"itemIdentifier":"m-0"}],"batchItemFailures":[]}`, `{"batchItemFailures":{}}`, `{"batchItemFailures":[1]}`,
		strings.Repeat(" ", 70000) + "{}", `{"x":"` + strings.Repeat("x", 70000), "\ufeff{}", "\v{\"index\":1,\"disposition\":\"retry\"}", "{\"index\":0,\"status\":500,\"reason\":\"\xff\"}", `{"batchItemFailures":[{"itemIdentifier":"` + "\xff" + `"}]}`,
	} {
		f.Add(seed, uint8(255))
		f.Add(seed, uint8(0))
	}
	f.Fuzz(func(t *testing.T, body string, step uint8) {
		for _, kind := range []string{"207 M", "200 OK\r\nContent-Type: application/x-ndjson", "200 OK\r\nContent-Type: application/json", "201 C\r\nContent-Encoding: gzip\r\nContent-Type: text/html",
			noLength, noLength + "\r\nContent-Type: application/jsonl"} {
			whole, each := read(t, kind, body, int(step)+1, 3)
			if each == nil {
				if whole.Failure != message.FailureMalformed || !unreadable.MatchString(whole.Err.Error()) {
					t.Fatalf("%s: %+v", kind, whole)
				}
				continue
			}
			isLines := strings.HasPrefix(kind, "207") || strings.Contains(kind, "ndjson")
			for i, o := range each {
				if want := wantVerdict(body, i, whole.Status, isLines); o.Failure != message.FailureNone || isLines && heardShort(o) != want {
					t.Fatalf("%s: message %d is %s, want %s", kind, i, heardShort(o), want)
				}
				if !isLines && o.Disposition != message.DispositionNone && !strings.Contains(strings.ToLower(body), "failures") && !strings.Contains(body, `\u`) {
					t.Fatalf("%s: message %d: %+v", kind, i, o)
				}
			}
		}
	})
}

func heardShort(o message.Outcome) string { return fmt.Sprint(o.Status, o.Disposition) }

// wantVerdict finds the line about a message in another way, and returns what it says.
func wantVerdict(body string, index, status int, isLines bool) string {
	disposition := message.DispositionNone
	for line := range strings.SplitSeq(body, "\n") {
		var v struct {
			Index       json.Number
			Status      json.Number
			Disposition string
		}
		if !isLines || json.Unmarshal([]byte(line), &v) != nil || v.Index.String() != itoa(index) && (v.Index.String() != "-0" || index != 0) {
			continue
		}
		if n, err := v.Status.Int64(); err == nil {
			status = int(n)
		}
		for i, word := range message.Dispositions {
			if http1.FoldEqual([]byte(v.Disposition), word) {
				disposition = message.DispositionAck + message.Disposition(i)
			}
		}
	}
	return fmt.Sprint(status, disposition)
}
