package topology

import (
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// Headers of a parked message, besides those of package message.
const (
	headerFinalPrefix        = "x-final-"
	HeaderFinalStatusCode    = "x-final-status-code" // int32, only when the app answered
	HeaderFinalError         = "x-final-error"       // only when it did not
	HeaderFinalReason        = "x-final-reason"
	HeaderFinalDetail        = "x-final-detail" // only when the app gave one
	HeaderFinalAnswer        = "x-final-answer" // the beginning of the last answer as text, of several lines
	HeaderFinalAt            = "x-final-at"     // RFC 3339, UTC: a text reads the same in every client
	HeaderFinalProblemType   = "x-final-problem-type"
	HeaderFinalProblemTitle  = "x-final-problem-title"
	HeaderFinalProblemDetail = "x-final-problem-detail"
	headerFinalDropped       = "x-final-headers-dropped" // int32, how many of its own did not fit beside these
)

const (
	maxText    = 1024 // bytes of x-final-error and of each problem field
	finalAtFmt = "2006-01-02T15:04:05.000Z"
)

// parkPublication is m on its way to the dead-letter queue, with the reasons of v.
func (p *Plan) parkPublication(m *message.Message, v *message.Verdict) *message.Publication {
	h := copyHeaders(m, func(key string) bool {
		// x-death stays, as the record of the retries, unless it is broken. Delivery counts are about a queue that the
		// message is leaving.
		stale := brokerRecord(key) && (m.Malformed || !deathRecord(key))
		return stale || senderSelected(key) || strings.HasPrefix(key, headerFinalPrefix) ||
			key == message.HeaderReply || p.StampQueue && key == HeaderRetryQueue
	})
	h[message.HeaderOriginalQueue] = m.Queue
	h[message.HeaderFinalRetryCount] = count(m.RetryCount)
	h[HeaderFinalReason] = v.Reason.String()
	setHistory(h, m)
	describe(h, &v.Cause)
	pub := p.Park.publication(message.KindPark, m, h)
	shrinkToFrame(&pub.Msg, FrameMax-parkReserve)
	return pub
}

func describe(h amqp.Table, o *message.Outcome) {
	switch {
	case o.Failure != message.FailureNone:
		setText(h, HeaderFinalError, failureText(o))
	case o.Status != 0 || !o.At.IsZero(): // an answer of status 000 is an answer
		h[HeaderFinalStatusCode] = int32(o.Status) // #nosec G115 -- three digits
	}
	if !o.At.IsZero() {
		h[HeaderFinalAt] = o.At.UTC().Format(finalAtFmt)
	}
	setText(h, HeaderFinalDetail, o.Detail)
	if o.Problem != nil {
		setText(h, HeaderFinalProblemType, o.Problem.Type)
		setText(h, HeaderFinalProblemTitle, o.Problem.Title)
		setText(h, HeaderFinalProblemDetail, o.Problem.Detail)
	}
	if o.Answer != "" {
		h[HeaderFinalAnswer] = o.Answer
	}
}

func setText(h amqp.Table, key, text string) {
	if text != "" {
		h[key] = plainText(text, maxText)
	}
}

func failureText(o *message.Outcome) string {
	class := o.Failure.String()
	if o.Failure == message.FailureTooLarge {
		class = "body too large"
	}
	switch {
	case o.Err == nil:
		return class
	case strings.HasPrefix(o.Err.Error(), class):
		return o.Err.Error()
	}
	return class + ": " + o.Err.Error()
}
