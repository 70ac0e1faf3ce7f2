package dispatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

const (
	maxReason  = 256     // bytes of Amqp-Reason
	maxProblem = 1 << 10 // bytes of each field of a problem document
)

func isProblem(contentType []byte) bool {
	mediaType, _, _ := bytes.Cut(contentType, []byte{';'})
	return http1.FoldEqual(bytes.Trim(mediaType, " \t"), "application/problem+json")
}

// parseProblem reads an RFC 9457 document; nil if it is not one. A member of the wrong type is skipped, as the RFC
// asks.
func parseProblem(b []byte) *message.Problem {
	// and not a map, in which a hostile document is ten times as large
	var members struct{ Type, Title, Detail json.RawMessage }
	if json.Unmarshal(b, &members) != nil {
		return nil
	}
	text := func(member json.RawMessage) string {
		var s string
		if json.Unmarshal(member, &s) != nil {
			return ""
		}
		return clean([]byte(s), maxProblem)
	}
	p := message.Problem{Type: text(members.Type), Title: text(members.Title), Detail: text(members.Detail)}
	if p == (message.Problem{}) {
		return nil
	}
	return &p
}

// clean makes text from the app fit for a log and a message header: valid UTF-8 of at most limit bytes, without control
// and formatting characters, which could fake lines or reorder what a terminal shows. Line breaks and tabs become
// spaces.
func clean(b []byte, limit int) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case !unicode.IsGraphic(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), ""))
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}

// DaprAnswer adds to o what a Dapr subscriber says in the body of a 2xx, {"status":"SUCCESS|RETRY|DROP"}, read as
// Dapr's runtime reads it: the first JSON value counts, the words are upper case, a word it does not know asks for a
// retry, and whatever is not such an object says nothing. From DROP Dapr takes a message to the dead letter topic, or
// to nowhere without one; here it is parked. The Amqp-Disposition header is asked first: an app that sends it speaks to
// us.
//
// Dapr reads a body to its end. Here no more than 64 KiB of it are, and if the JSON goes on behind them it is unknown
// what the app asked for: the attempt has failed, because an ack cannot be taken back.
func DaprAnswer(body []byte, o *message.Outcome) {
	daprAnswer(body[:min(len(body), http1.MaxBody)], len(body) > http1.MaxBody, o)
}

// errDaprTooLong names the variable, for it is what makes the size matter.
const errDaprTooLong = http1.MalformedError("too large for SIDECAR_RESPONSE_DIALECT=dapr: over 64 KiB")

// daprAnswer reads body, which may be only the beginning of what the app sent.
func daprAnswer(body []byte, more bool, o *message.Outcome) {
	if !o.OK() || o.Disposition != message.DispositionNone {
		return
	}
	status, ends := daprStatus(body)
	if more && !ends {
		o.Status, o.Problem, o.RetryAfter = 0, nil, -1
		o.Failure, o.Err, o.Unknown = message.FailureMalformed, errDaprTooLong, true
		return
	}
	if status != "" && !daprWord(status, o) { // the word is not repeated: it is a part of a body
		o.Disposition, o.Detail = message.DispositionRetry, cmp.Or(o.Detail, "dapr: unknown status")
		o.Unknown = true
	}
}

// daprWord adds to o what a status of Dapr asks for; it returns false for any other word.
func daprWord(status string, o *message.Outcome) (known bool) {
	switch status {
	case "SUCCESS":
	case "RETRY":
		o.Disposition, o.Detail = message.DispositionRetry, cmp.Or(o.Detail, "dapr: RETRY")
	case "DROP":
		o.Disposition, o.Detail = message.DispositionPark, cmp.Or(o.Detail, "dapr: DROP")
	default:
		return false
	}
	return true
}

// daprStatus is the status in body, "" without one. ends reports whether nothing behind body could change that.
func daprStatus(body []byte) (status string, ends bool) {
	body = bytes.TrimLeft(body, " \t\r\n")
	if len(body) == 0 {
		return "", false
	}
	if body[0] != '{' { // most answers: no decoder is made for them
		return "", true
	}
	var answer struct {
		Status string `json:"status"`
	}
	err := json.Unmarshal(body, &answer)
	if _, bad := errors.AsType[*json.SyntaxError](err); bad { // perhaps something behind the first value
		answer.Status = ""
		err = json.NewDecoder(bytes.NewReader(body)).Decode(&answer)
	}
	if err != nil {
		return "", !errors.Is(err, io.ErrUnexpectedEOF)
	}
	return answer.Status, true
}
