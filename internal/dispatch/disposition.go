package dispatch

import (
	"bytes"
	"encoding/json"
	"unicode"
	"unicode/utf8"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

const (
	maxReason  = 256     // bytes of Amqp-Reason
	maxProblem = 1 << 10 // bytes of each field of a problem document
)

// disposition collects the Amqp-Disposition headers of one answer.
type disposition struct {
	value       message.Disposition // None also for a word that is not known
	seen        bool
	conflicting bool // two headers ask for different things
}

func (d *disposition) set(b []byte) {
	if len(b) == 0 {
		return
	}
	v := message.DispositionNone
	for d, word := range dispositions {
		if http1.FoldEqual(b, word) {
			v = message.Disposition(d) // #nosec G115 -- a handful
		}
	}
	d.conflicting = d.conflicting || d.seen && v != d.value
	d.value, d.seen = v, true
}

func (d *disposition) unknown() bool { return d.seen && d.value == message.DispositionNone }

var dispositions = [...]string{
	message.DispositionAck: "ack", message.DispositionRetry: "retry", message.DispositionRequeue: "requeue",
	message.DispositionPark: "park", message.DispositionDiscard: "discard",
}

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
	out := make([]byte, 0, min(len(b), limit))
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		b = b[size:]
		switch {
		case r == utf8.RuneError && size == 1:
			continue
		case r == '\n' || r == '\r' || r == '\t':
			r = ' '
		case !unicode.IsGraphic(r):
			continue
		}
		if len(out)+utf8.RuneLen(r) > limit {
			break
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}
