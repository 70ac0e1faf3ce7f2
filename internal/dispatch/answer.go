package dispatch

import (
	"bytes"
	"math"
	"net/http"
	"strings"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

const errDispositions = http1.MalformedError("two different Amqp-Disposition words")

// answer is what the header fields of an answer say about the message. It implements http1.Header.
type answer struct {
	dapr  bool // the body of a 2xx may contain a Dapr status
	limit int  // bytes of a failing answer's text
	batch bool // the body of a 2xx may contain verdicts

	contentType []byte // the beginning of the last one
	kinds       kinds  // all content types, of an answer to a batch
	location    []byte // its beginning
	encoded     bool   // the body has a Content-Encoding
	isProblem   bool
	retryAfter  time.Duration // -1 without one that is understood
	disposition message.Disposition
	worded      bool // there is a field for a disposition, perhaps an empty one
	asked       bool // for a disposition, known or not
	conflicting bool // two words in it ask for different things
	reason      string
}

// Reset clears the fields of an interim answer.
func (a *answer) Reset() {
	*a = answer{dapr: a.dapr, limit: a.limit, batch: a.batch, contentType: a.contentType[:0],
		location: a.location[:0], retryAfter: -1}
}

// Field reads one header field. The first Retry-After that is understood counts.
func (a *answer) Field(name, value []byte) {
	switch {
	case http1.FoldEqual(name, "retry-after") && a.retryAfter < 0:
		a.retryAfter = retryAfter(value, time.Now())
	case http1.FoldEqual(name, "amqp-reason") && a.reason == "":
		a.reason = clean(value, maxReason)
	case http1.FoldEqual(name, "content-type"):
		a.isProblem = a.isProblem || isProblem(value)
		if a.batch {
			a.kinds |= kindsOf(value)
		}
		a.contentType = append(a.contentType[:0], value[:min(len(value), maxContentType)]...)
	case http1.FoldEqual(name, "location"):
		a.location = append(a.location[:0], value[:min(len(value), maxLocation)]...)
	case http1.FoldEqual(name, "content-encoding"):
		a.encoded = a.encoded || len(value) > 0 && !http1.FoldEqual(value, "identity")
	case http1.FoldEqual(name, "amqp-disposition"):
		a.worded = true
		a.setDisposition(value)
	}
}

// setDisposition reads an Amqp-Disposition header, of which a proxy may have made one of several, separated by commas.
// A word that is not known asks for nothing.
func (a *answer) setDisposition(b []byte) {
	for item := range bytes.SplitSeq(b, []byte{','}) {
		item = bytes.Trim(item, blanks)
		if len(item) == 0 {
			continue
		}
		v := message.DispositionNone
		for i, word := range message.Dispositions {
			if http1.FoldEqual(item, word) {
				v = message.DispositionAck + message.Disposition(i) // #nosec G115 -- a handful
			}
		}
		a.conflicting = a.conflicting || a.asked && v != a.disposition
		a.disposition, a.asked = v, true
	}
}

// kinds are the content types of an answer that make a difference to verdicts; 0 without any.
type kinds uint8

const (
	jsonLines kinds = 1 << iota
	jsonText
	html
	otherKind
)

// kindsOf returns the kinds of the content types in a header field, of which a proxy may have made one of several.
func kindsOf(value []byte) (k kinds) {
	for item := range bytes.SplitSeq(value, []byte{','}) {
		t := strings.ReplaceAll(string(bytes.TrimSpace(item)), `"`, "") // some apps quote it
		mediaType, _, _ := strings.Cut(t, ";")
		_, suffix, _ := strings.Cut(mediaType, "+")
		switch {
		case amqpvalue.IsJSONLines(t), amqpvalue.IsJSONLines("application/" + suffix):
			k |= jsonLines
		case amqpvalue.IsJSON(t):
			k |= jsonText
		case http1.FoldPrefix([]byte(t), "text/html"):
			k |= html
		default:
			k |= otherKind
		}
	}
	return k
}

// Body says whether the body has something to say. Where two dispositions differ the answer is malformed: the status
// must not decide, for it may be a 2xx.
func (a *answer) Body(status int) (http1.Use, error) {
	switch {
	case a.conflicting:
		return http1.Skip, errDispositions
	case (a.dapr || a.batch && a.disposition == message.DispositionNone) && status/100 == 2:
		return http1.Need, nil
	case a.isProblem:
		return http1.Keep, nil
	case a.limit > 0 && fails(a.disposition, status):
		return http1.Begin, nil
	}
	return http1.Skip, nil
}

// report copies the result into o.
func (a *answer) report(in *http1.Answer, o *message.Outcome, retryAfterMax time.Duration) {
	o.Status = in.Status
	o.RetryAfter = min(a.retryAfter, retryAfterMax)
	o.Disposition, o.Unknown = a.disposition, a.asked && a.disposition == message.DispositionNone
	o.Detail = a.reason
	if o.Status/100 == 3 {
		o.Location = shownLocation(a.location)
	}
	if a.isProblem {
		o.Problem = parseProblem(in.Body)
	}
	if a.dapr {
		daprAnswer(in.Body, !in.Whole, o)
	}
	if a.limit > 0 && in.Size > 0 && o.Failure == message.FailureNone && fails(o.Disposition, o.Status) {
		o.Answer = a.text(in)
	}
}

// fails reports whether a message may be parked after an answer with this disposition and status.
func fails(d message.Disposition, status int) bool {
	return d == message.DispositionNone && status/100 != 2 ||
		d == message.DispositionRetry || d == message.DispositionRequeue || d == message.DispositionPark
}

// retryAfter reads a Retry-After header, seconds or a date, as the time from now; 0 for a date that has passed, and -1
// for a value that is neither.
func retryAfter(value []byte, now time.Time) time.Duration {
	if seconds, ok := http1.ParseDigits(value); ok {
		return time.Duration(min(seconds, int64(math.MaxInt64/time.Second))) * time.Second
	}
	if len(value) > 40 { // longer than any date
		return -1
	}
	date, err := http.ParseTime(string(value))
	if err != nil {
		return -1
	}
	return max(0, date.Sub(now))
}
