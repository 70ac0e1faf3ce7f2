package dispatch

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/message"
)

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
