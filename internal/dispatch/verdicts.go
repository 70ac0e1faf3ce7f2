package dispatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

const blanks = " \t\r\n" // of JSON

// verdict is a line of an answer: what the app says of one message.
type verdict struct {
	Index       *int
	Status      *int
	RetryAfter  *float64 `json:"retry_after"` // seconds
	Disposition string
	Reason      string
}

// verdicts returns the outcome of each message, or nil if x.out is that of all of them: the app answered no 2xx,
// decided about all of them in a header, or what it says of each cannot be read. An ack cannot be taken back, so that
// is a failure. The text of the failure never quotes the answer, which may contain parts of messages.
func (x *attempt) verdicts(ms []*message.Message, leftOut []int, retryAfterMax time.Duration) []message.Outcome {
	if !x.out.OK() || x.out.Disposition != message.DispositionNone {
		return nil
	}
	each := make([]message.Outcome, len(ms))
	for i := range each {
		each[i] = x.out
		each[i].Truncated = leftOut[i]
	}
	if problem := x.judge(ms, each, retryAfterMax); problem != "" {
		x.out.Status, x.out.Problem, x.out.RetryAfter = 0, nil, -1
		x.out.Failure, x.out.Err = message.FailureMalformed, http1.MalformedError(problem)
		return nil
	}
	return each
}

// judge changes the outcomes of the messages that did not succeed, or returns why it cannot.
func (x *attempt) judge(ms []*message.Message, each []message.Outcome, retryAfterMax time.Duration) (problem string) {
	in := &x.exchange.Answer
	in.Body = bytes.TrimPrefix(in.Body, []byte("\ufeff")) // some writers of JSON begin with it
	body := bytes.TrimLeft(in.Body, blanks)
	isLines := in.Status == http.StatusMultiStatus || x.answer.hasType("application/jsonl", "application/x-ndjson")
	isJSON := amqpvalue.IsJSON(string(x.answer.contentType))
	switch {
	case x.answer.encoded && in.Size > 0 && (isLines || isJSON || len(x.answer.contentType) == 0):
		return "compressed, which may hide verdicts"
	case in.CloseDelimited && (isLines || isJSON && len(body) == 0):
		return "neither a Content-Length nor chunks: verdicts may be missing"
	case !isLines && (len(body) == 0 && in.Whole || len(body) > 0 && body[0] != '{'):
		return ""
	case !in.Whole:
		return fmt.Sprintf("more than %d bytes, which may hold verdicts on %d messages", in.Limit, len(ms))
	case isLines:
		return readLines(in.Body, each, retryAfterMax)
	}
	return readFailures(body, in.CloseDelimited, ms, each)
}

// hasType reports whether the answer is of one of the types, which are in lower case.
func (a *answer) hasType(types ...string) bool {
	kind, _, _ := bytes.Cut(a.contentType, []byte{';'})
	kind = bytes.TrimSpace(kind)
	for _, t := range types {
		if http1.FoldEqual(kind, t) {
			return true
		}
	}
	return false
}

// readLines reads JSON Lines, a verdict on one message in each. Messages without one succeeded.
func readLines(body []byte, each []message.Outcome, retryAfterMax time.Duration) (problem string) {
	judged := make([]bool, len(each))
	number := 0
	for line := range bytes.Lines(body) {
		number++
		if line = bytes.Trim(line, blanks); len(line) == 0 {
			continue
		}
		var v verdict
		switch {
		case json.Unmarshal(line, &v) != nil:
			problem = "not a JSON object of a verdict"
		case v.Index == nil || *v.Index < 0 || *v.Index >= len(each):
			problem = fmt.Sprintf("index is not that of one of the %d messages", len(each))
		case judged[*v.Index]:
			problem = "a second verdict on a message"
		default:
			judged[*v.Index] = true
			problem = v.apply(&each[*v.Index], retryAfterMax)
		}
		if problem != "" {
			return fmt.Sprintf("line %d: %s", number, problem)
		}
	}
	return ""
}

// apply makes o what an answer with this status and these headers would make it.
func (v *verdict) apply(o *message.Outcome, retryAfterMax time.Duration) (problem string) {
	var a answer
	a.setDisposition([]byte(v.Disposition))
	o.RetryAfter, o.Problem = -1, nil
	o.Disposition, o.Unknown = a.disposition, a.asked && a.disposition == message.DispositionNone
	o.Detail = clean([]byte(v.Reason), maxReason)
	switch {
	case v.Status != nil && (*v.Status < 100 || *v.Status > 599):
		return "status is not from 100 to 599"
	case v.Status != nil:
		o.Status = *v.Status
	case o.Disposition == message.DispositionNone:
		return "neither a status nor a known disposition"
	}
	if v.RetryAfter != nil {
		if *v.RetryAfter < 0 {
			return "retry_after is negative"
		}
		o.RetryAfter = min(time.Duration(min(*v.RetryAfter*float64(time.Second), math.MaxInt64/2)), retryAfterMax)
	}
	return ""
}

// readFailures reads what AWS Lambda takes as the answer to a batch, the identifiers of the messages that failed:
// message ids, and here indexes, too. An identifier that is no message's makes the whole batch fail, as in Lambda. Any
// other object says nothing. cut means that the body may have been cut short.
func readFailures(body []byte, cut bool, ms []*message.Message, each []message.Outcome) (problem string) {
	failed, problem := identifiers(body, cut, len(ms))
	if len(failed) == 0 || problem != "" {
		return problem
	}
	fail := func(i int) {
		each[i] = message.Outcome{Status: each[i].Status, RetryAfter: -1, Disposition: message.DispositionRetry,
			Detail: "batchItemFailures", Truncated: each[i].Truncated, Route: each[i].Route, URL: each[i].URL}
	}
	for i, m := range ms {
		if _, named := failed[m.MessageID]; named {
			failed[m.MessageID] = true
			fail(i)
		}
	}
	for identifier, found := range failed {
		i, ok := http1.ParseDigits([]byte(identifier))
		switch {
		case found:
		case !ok || i >= int64(len(ms)):
			return "batchItemFailures names no message of the batch"
		default:
			fail(int(i))
		}
	}
	return ""
}

// identifiers reads the identifiers, of which there cannot be more than messages. It decodes one after the other: all
// at once, small items would take many times the memory of their text.
func identifiers(body []byte, cut bool, most int) (all map[string]bool, problem string) {
	d, err := amqpvalue.DecodeJSON(body)
	switch {
	case err != nil && cut:
		return nil, "not a JSON object, and perhaps cut short"
	case err != nil && !bytes.Contains(bytes.ToLower(body), []byte("batchitemfailures")):
		return nil, "" // as any other text
	case err != nil:
		return nil, "batchItemFailures in what is not a JSON object"
	}
	all = map[string]bool{}
	for _, _ = d.ReadToken(); d.PeekKind() != '}'; {
		name, _ := d.ReadToken()
		kind := d.PeekKind()
		switch {
		case kind == 'n' || !strings.EqualFold(name.String(), "batchItemFailures"):
			_ = d.SkipValue()
			continue
		case kind != '[':
			return nil, "batchItemFailures is not an array"
		}
		_, _ = d.ReadToken()
		for count := 0; d.PeekKind() != ']'; count++ {
			var item struct{ ItemIdentifier string }
			switch value, _ := d.ReadValue(); {
			case json.Unmarshal(value, &item) != nil || item.ItemIdentifier == "":
				return nil, "batchItemFailures without an itemIdentifier, a string"
			case count == most:
				return nil, "more batchItemFailures than messages"
			}
			all[item.ItemIdentifier] = false
		}
		_, _ = d.ReadToken()
	}
	return all, ""
}
