package dispatch

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"sidecar/internal/message"
)

// noLength is the status line of an answer that ends where the connection does.
const noLength = "299 N"

// readFor returns what an answer of this kind with this body says of ms.
func readFor(tb testing.TB, target *Target, ms []*message.Message, kind, body string, step int) (whole message.Outcome, each []message.Outcome) {
	tb.Helper()
	n, leftOut := len(ms), make([]int, len(ms))
	length := "\r\nContent-Length: " + itoa(len(body))
	if strings.HasPrefix(kind, noLength) {
		length = ""
	}
	raw := []byte("HTTP/1.1 " + kind + length + "\r\n\r\n" + body)
	x := newAttempt(target, time.Time{})
	defer x.release()
	x.exchange.Answer.Limit, x.answer.batch = answerLimit(n), true
	if err := x.exchange.Answer.Read(&trickle{raw, step}, &x.answer); err != nil {
		tb.Fatal(err)
	}
	x.answer.report(&x.exchange.Answer, &x.out, time.Minute)
	each = x.verdicts(target, ms, leftOut)
	return x.out, each
}

// Whatever an app says, reading it takes no more memory than was taken for it: all that was ever allocated is more than
// what is held at a time, which is a buffer that has grown to the answer's size.
func TestMemoryOfVerdicts(t *testing.T) { //nolint:paralleltest // measures what is allocated
	const lines, object = "207 M\r\nContent-Type: application/jsonl", "200 OK\r\nContent-Type: application/json"
	for _, n := range []int{1, 300} {
		limit := int(answerLimit(n))
		fill := func(start, part, end string) string {
			return start + strings.Repeat(part, (limit-len(start)-len(end))/len(part)) + end
		}
		for name, c := range map[string]struct{ kind, body string }{
			"a line":         {lines, fill(`{"index":0,"status":500,"x":"`, "x", `"}`)},
			"a reason":       {lines, fill(`{"index":0,"status":500,"reason":"`, `\u0001`, `"}`)},
			"deep":           {lines, fill(`{"index":0,"status":500,"x":`, "[", "")},
			"numbers":        {lines, fill(`{"index":0,"status":500,"x":[`, "1,", "1]}")},
			"members":        {lines, fill(`{"index":0,"status":500`, `,"":{}`, "}")},
			"a number":       {lines, fill(`{"index":0,"status":500,"retry_after":`, "9", "}")},
			"items":          {object, fill(`{"batchItemFailures":[`, `{"itemIdentifier":"0"},`, `{"itemIdentifier":"0"}]}`)},
			"an identifier":  {object, fill(`{"batchItemFailures":[{"itemIdentifier":"`, "x", `"}]}`)},
			"a name":         {object, fill(`{"`, "x", `":0}`)},
			"a member":       {object, fill(`{"x":[`, `{"x":[{}]},`, "{}]}")},
			"many verdicts":  {object, fill(`[`, `{"index":0,"status":500},`, `{"index":0,"status":500}]`)},
			"statuses":       {object, fill(`{"statuses":[`, `{"entryId":"m-0","status":"RETRY"},`, `{}]}`)},
			"encoded twice":  {object, fill(`"[`, `{\"x\":0},`, `{}]"`)},
			"strings":        {object, fill(`[`, `"{\"index\":",`, `0]`)},
			"a string":       {object, fill(`["{`, `\"x\":`, `"]`)},
			"other notation": {object, fill(`x `, `index: `, ``)},
			"other blanks":   {object, fill(`x status:`, "\u00a0", `0`)},
			"codes":          {object, fill(`x`, `%41`, ``)},
			"coded strings":  {object, fill(`[`, `"%7B%41",`, `0]`)},
			"a coded string": {object, fill(`["`, `%7B`, `"]`)},
			"too long":       {object, strings.Repeat("{", 2*limit)},
		} {
			reader, ms := newReader(), samples(n)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			readFor(t, reader, ms, c.kind, c.body, 64<<10)
			runtime.ReadMemStats(&after)
			cost := after.TotalAlloc - before.TotalAlloc
			if bound := uint64(9*limit + n*1024 + 512<<10); cost > bound {
				t.Errorf("%s of %d bytes to %d messages: %d bytes allocated, the bound is %d", name, len(c.body), n, cost, bound)
			}
		}
	}
}
