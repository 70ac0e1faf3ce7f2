package dispatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

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
	switch status {
	case "", "SUCCESS":
		return
	case "RETRY":
		o.Disposition, o.Detail = message.DispositionRetry, cmp.Or(o.Detail, "dapr: RETRY")
	case "DROP":
		o.Disposition, o.Detail = message.DispositionPark, cmp.Or(o.Detail, "dapr: DROP")
	default: // the word is not repeated: it is a part of a body
		o.Disposition, o.Detail = message.DispositionRetry, cmp.Or(o.Detail, "dapr: unknown status")
		o.Unknown = true
	}
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
