package dispatch

import (
	"bytes"
	"encoding/json"
	"errors"

	"sidecar/internal/message"
)

// DaprAnswer adds to o what a Dapr subscriber says in the body of a 2xx, {"status":"SUCCESS|RETRY|DROP"}, read as Dapr's
// runtime reads it: the first JSON value counts, the words are upper case, a word it does not know asks for a retry, and
// whatever is not such an object says nothing. From DROP Dapr takes a message to the dead letter topic, or to nowhere
// without one; here it is parked. The Amqp-Disposition header is asked first: an app that sends it speaks to us.
func DaprAnswer(body []byte, o *message.Outcome) {
	if !o.OK() || o.Disposition != message.DispositionNone {
		return
	}
	switch daprStatus(body) {
	case "", "SUCCESS":
		return
	case "RETRY":
		o.Disposition = message.DispositionRetry
		detail(o, "dapr: RETRY")
	case "DROP":
		o.Disposition = message.DispositionPark
		detail(o, "dapr: DROP")
	default:
		o.Disposition, o.Unknown = message.DispositionRetry, true
		detail(o, "dapr: unknown status")
	}
}

// detail keeps what the app has said itself. An unknown word is not repeated: it is a part of a body.
func detail(o *message.Outcome, text string) {
	if o.Detail == "" {
		o.Detail = text
	}
}

// daprStatus is the status in body, "" without one.
func daprStatus(body []byte) string {
	body = bytes.TrimLeft(body, " \t\r\n")
	if len(body) == 0 || body[0] != '{' { // most answers: no decoder is made for them
		return ""
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
		return ""
	}
	return answer.Status
}
