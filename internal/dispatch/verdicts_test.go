package dispatch

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
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
		"HTTP/1.1 200 OK\r\n\r\n{\"index\":0,\"status\":503}\n":                                    noLength,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"index\":0,\"status\":503}\n":  noLength,
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{\"index\":0,\"status\":503}\n":        noLength,
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
		body := ""
		for range 1 + random.IntN(2)*random.IntN(3) {
			body += randomJSON(random, 0) + []string{"", "\n", "\r\n\t", "\x1e", ","}[min(4, random.IntN(40)/9)]
		}
		if random.IntN(20) == 0 {
			body = body[:random.IntN(len(body)+1)]
		}
		checkAnswer(t, body, 1<<10)
	}
}

// randomJSON is a value, mostly of verdicts and of what is around them.
func randomJSON(random *rand.Rand, depth int) string {
	pick := func(words string) string {
		from := strings.Fields(words)
		return from[random.IntN(len(from))]
	}
	scalar := pick(`0 1 2 3 200 204 299 300 503 599 600 5e2 503.0 -1 "0" "1" "2" "a" "SUCCESS" "RETRY" "DROP" "ack" "park" "x" "" null true "503"`)
	switch kind := random.IntN(10); {
	case depth > 5 || kind == 0:
		return scalar
	case kind < 3:
		items := make([]string, random.IntN(4))
		for i := range items {
			items[i] = randomJSON(random, depth+1)
		}
		return "[" + strings.Join(items, ",") + "]"
	case kind < 7: // a verdict
		return fmt.Sprintf(`{"%s":%s,"%s":%s}`, pick("index index entryId itemIdentifier"), pick(`0 1 2 "a" "1" "2"`), pick("status status status disposition"), scalar)
	}
	members := make([]string, random.IntN(4))
	for i := range members {
		value := scalar
		if random.IntN(2) == 0 {
			value = randomJSON(random, depth+1)
		}
		members[i] = fmt.Sprintf(`"%s":%s`, pick(`index entryId itemIdentifier status disposition retry_after reason statuses batchItemFailures Status st\u0061tus x results error`), value)
	}
	return "{" + strings.Join(members, ",") + "}"
}
