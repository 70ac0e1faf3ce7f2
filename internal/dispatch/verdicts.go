package dispatch

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

const (
	blanks      = " \t\r\n" // of JSON
	errNoLength = "neither a Content-Length nor chunks: verdicts may be missing"
)

// verdicts returns the outcome of each message, or nil if x.out is that of all of them: the app answered no 2xx,
// decided about all of them in a header, or its answer may hold verdicts and cannot be read. An ack cannot be taken
// back, so that is a failure. The text of the failure never quotes the answer, which may contain parts of messages. A
// warning, at most one a minute, shows the beginning of the answer.
func (x *attempt) verdicts(t *Target, ms []*message.Message, leftOut []int) []message.Outcome {
	if !x.out.OK() || x.out.Disposition != message.DispositionNone {
		return nil
	}
	j := judgement{
		t: t, ms: ms, each: make([]message.Outcome, len(ms)), judged: make([]bool, len(ms)),
	}
	for i := range ms {
		j.each[i] = x.out
		j.each[i].Truncated = leftOut[i]
	}
	problem := x.judge(&j)
	if problem == "" {
		return j.each
	}
	t.unread.Do(func(suppressed int) {
		const shown = 200
		body := x.exchange.Answer.Body
		t.o.Logger.Warn("answer not understood", "messages", len(ms), "status", x.out.Status, "error", problem,
			"content_type", string(x.answer.contentType), "suppressed", suppressed,
			"answer", escape(body[:min(len(body), shown)], "", len(body) > shown, shown))
	})
	x.out.Status, x.out.Problem, x.out.RetryAfter, x.out.Unknown = 0, nil, -1, false
	x.out.Failure, x.out.Err = message.FailureMalformed, http1.MalformedError(problem)
	return nil
}

// judge changes the outcomes of the messages that are not done, or returns why it cannot. An answer with the status 207
// or a type of JSON Lines must hold verdicts; any other answer is searched for verdicts.
func (x *attempt) judge(j *judgement) (problem string) {
	in := &x.exchange.Answer
	body, declared := plain(in.Body), in.Status == http.StatusMultiStatus || x.answer.kinds&jsonLines != 0
	if problem = x.unreadable(body, declared); problem != "" {
		return problem
	}
	switch {
	case in.CloseDelimited && (declared || x.answer.kinds&jsonText != 0 && len(bytes.TrimLeft(body, blanks)) == 0):
		return errNoLength
	case !in.Whole:
		if declared || !x.answer.encoded && !isPage(body) {
			return fmt.Sprintf("more than %d bytes, which may hold verdicts on %d messages", in.Limit, len(j.ms))
		}
		return ""
	}
	p, problem := find(body, declared)
	switch {
	case problem != "" || p.form == nowhere:
		return problem
	case p.form == sequence && in.CloseDelimited:
		return errNoLength
	}
	return j.read(body[p.from:p.to], p.form)
}

// unreadable returns why the words or the bytes of the answer cannot be understood, "" if they can.
func (x *attempt) unreadable(body []byte, declared bool) (problem string) {
	switch a := &x.answer; {
	case a.worded:
		return "an unknown word in Amqp-Disposition"
	case x.exchange.Answer.Size > 0 && a.encoded && (declared || a.kinds != html):
		return "compressed, which may hide verdicts"
	case !a.encoded && bytes.HasPrefix(body, []byte("\x1f\x8b")):
		return "compressed without a Content-Encoding, which may hide verdicts"
	case !a.encoded && bytes.IndexByte(body, 0) >= 0:
		return "a zero byte, as in UTF-16, which may hide verdicts"
	}
	return ""
}

// plain returns the text of a JSON body: without a byte order mark, without the separators of application/json-seq,
// which it overwrites, and of a body that is one JSON string its content, because an app may have encoded it twice.
func plain(body []byte) []byte {
	for i := bytes.IndexByte(body, 0x1e); 0 <= i && i < len(body); i++ {
		if body[i] == 0x1e {
			body[i] = ' '
		}
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if !isText(body) && jsontext.Value(body).Kind() == '"' && jsontext.Value(body).IsValid(amqpvalue.Lenient...) {
		body, _ = jsontext.AppendUnquote(nil, bytes.Trim(body, blanks)) // bytes that are not UTF-8 are replaced
	}
	return body
}

// isText reports whether body does not begin as an object, an array or a string of JSON.
func isText(body []byte) bool {
	body = bytes.TrimLeft(body, blanks)
	return len(body) == 0 || bytes.IndexByte([]byte(`{["`), body[0]) < 0
}
