package dispatch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sidecar/internal/message"
)

// verdict is what an app says of one message, or of several with one id.
type verdict struct {
	index                   *int
	entryID, itemIdentifier *string // a message id or an index
	status                  *int
	word                    string   // in the place of the status
	retryAfter              *float64 // seconds
	disposition, reason     string
}

// decode reads a verdict; in batchItemFailures only the identifier counts. Package json would use the last of several
// values.
func (v *verdict) decode(raw jsontext.Value, form form) (problem string) {
	if raw[0] != '{' {
		return "not a JSON object of a verdict"
	}
	targets := [otherName]any{
		&v.index, &v.entryID, &v.itemIdentifier, &v.status, &v.disposition, &v.retryAfter, &v.reason,
	}
	d, seen := newDecoder(raw), [otherName]bool{}
	for _, _ = d.ReadToken(); d.PeekKind() != '}'; {
		quoted, _ := d.ReadValue()
		name := nameOf(quoted)
		value, _ := d.ReadValue()
		if name > nameReason || form == failures && name != nameItemIdentifier {
			continue
		}
		target := targets[name]
		if name == nameStatus && value[0] == '"' {
			target = &v.word
		}
		switch {
		case seen[name]:
			return names[name] + " is there twice"
		case name <= nameItemIdentifier && value[0] == 'n', json.Unmarshal(value, target) != nil:
			return names[name] + " has a value of another type"
		}
		seen[name] = true
	}
	return ""
}

// judgement is what an answer says of the messages of a batch.
type judgement struct {
	t      *Target
	ms     []*message.Message
	each   []message.Outcome
	judged []bool
	ids    [][3]string // of each message, see identify
}

// read reads the verdicts in text, which is JSON. Messages without a verdict are done, except where Dapr would try them
// again.
func (j *judgement) read(text []byte, form form) (problem string) {
	d, all := newDecoder(text), form == statuses
	switch kind := d.PeekKind(); {
	case form == sequence:
	case form == failures && kind == 'n':
		return ""
	case kind != '[':
		return "statuses or batchItemFailures that are not an array"
	default:
		_, _ = d.ReadToken()
	}
	for n := 1; d.PeekKind() != ']'; n++ {
		raw, err := d.ReadValue()
		if err != nil { // the end of a sequence
			break
		}
		var v verdict
		if n > len(j.ms) {
			problem = "more verdicts than messages"
		} else if problem = v.decode(raw, form); problem == "" {
			problem = j.apply(&v, form)
		}
		switch {
		case problem != "" && form == sequence:
			return lineOf(text, d.InputOffset()-int64(len(raw))) + problem
		case problem != "":
			return fmt.Sprintf("item %d: ", n) + problem
		}
		all = all || v.entryID != nil
	}
	if all && slices.Contains(j.judged, false) {
		return "statuses without one of every message"
	}
	return ""
}

// apply makes the outcomes of the messages that v names what it says.
func (j *judgement) apply(v *verdict, form form) (problem string) {
	indexes, problem := j.named(v)
	for _, i := range indexes {
		o := &j.each[i]
		switch {
		case form == failures:
			o.Disposition, o.Unknown, o.Detail = message.DispositionRetry, false, "batchItemFailures"
			o.RetryAfter, o.Problem = -1, nil
		case j.judged[i]:
			return "a second verdict on a message"
		default:
			problem = v.apply(o, j.t.o.RetryAfterMax)
		}
		j.judged[i] = true
	}
	return problem
}

// named returns the indexes of the messages that v is about. An identifier that could be about different messages, as
// one kind of id or another or as an index, is a problem: a publisher's id must not decide about another message.
func (j *judgement) named(v *verdict) (indexes []int, problem string) {
	identifier := cmp.Or(v.entryID, v.itemIdentifier)
	switch n := len(j.ms); {
	case v.index != nil && identifier != nil, v.entryID != nil && v.itemIdentifier != nil:
		return nil, "more than one of index, entryId and itemIdentifier"
	case identifier != nil && *identifier == "":
		return nil, "an empty identifier"
	case identifier != nil:
	case v.index == nil || *v.index < 0 || *v.index >= n:
		return nil, fmt.Sprintf("neither an index from 0 to %d nor an identifier", n-1)
	default:
		return []int{*v.index}, ""
	}
	return j.identified(*identifier)
}

// identified returns the indexes of the messages of which identifier is an id, of one and the same kind.
func (j *judgement) identified(identifier string) (indexes []int, problem string) {
	j.identify()
	for kind := range j.ids[0] {
		isFirst := indexes == nil
		for i := range j.ids {
			switch {
			case j.ids[i][kind] != identifier:
			case isFirst:
				indexes = append(indexes, i)
			case isIn(indexes, i):
			case kind == len(j.ids[i])-1:
				return nil, "an identifier that is the id of one message and the index of another"
			default:
				return nil, "an identifier that is an id of one message and another kind of id of another message"
			}
		}
	}
	if indexes == nil {
		return nil, "an identifier of no message of the batch"
	}
	return indexes, ""
}

func isIn(sorted []int, i int) bool {
	_, found := slices.BinarySearch(sorted, i)
	return found
}

// identify makes j.ids what an app may take for the name of each message: the id that the format shows first, then the
// other one of the message id and the event's id, and the index. The replacement character takes the place of bytes
// that are not UTF-8, as in JSON.
func (j *judgement) identify() {
	if j.ids != nil {
		return
	}
	var r request
	for i, m := range j.ms {
		ids := [...]string{string([]rune(m.MessageID)), r.eventID(j.t, asSent(m)), strconv.Itoa(i)}
		if j.t.o.BatchFormat == "cloudevents" {
			ids[0], ids[1] = ids[1], ids[0]
		}
		j.ids = append(j.ids, ids)
	}
}

// apply makes o what an answer with this status and these headers would make it.
func (v *verdict) apply(o *message.Outcome, longest time.Duration) (problem string) {
	var a answer
	a.setDisposition([]byte(v.disposition))
	o.RetryAfter, o.Problem = -1, nil
	o.Disposition, o.Unknown = a.disposition, a.asked && a.disposition == message.DispositionNone
	o.Detail = clean([]byte(v.reason), maxReason)
	switch {
	case a.conflicting:
		return "disposition has two different words"
	case v.status != nil && (*v.status < 100 || *v.status > 599):
		return "status is not from 100 to 599"
	case v.status != nil:
		o.Status = *v.status
	case o.Disposition != message.DispositionNone || daprWord(v.word, o):
	case v.word != "":
		return "status is a text that is not SUCCESS, RETRY or DROP"
	default:
		return "neither a status nor a known disposition"
	}
	if v.retryAfter != nil {
		if *v.retryAfter < 0 {
			return "retry_after is negative"
		}
		o.RetryAfter = min(time.Duration(min(*v.retryAfter*float64(time.Second), math.MaxInt64/2)), longest)
	}
	return ""
}
