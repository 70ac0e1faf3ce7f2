package dispatch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"sidecar/internal/amqpvalue"
)

// form is how verdicts are written.
type form uint8

const (
	nowhere  form = iota // there are no verdicts
	sequence             // JSON objects one after the other, as JSON Lines, or one object
	list                 // an array of objects
	statuses             // an array of objects, of Dapr's bulk subscribe: every message must be named
	failures             // batchItemFailures of AWS Lambda: an array of objects, each names a message that failed
)

// region is the part of an answer that holds the verdicts.
type region struct {
	form     form
	from, to int64
}

// Names in an answer, in any case. The first ones, up to the reason, are those of a verdict, in the order of the
// targets of verdict.decode; mentions.go seeks most of them where the JSON is broken.
var names = [otherName]string{
	"index", "entryId", "itemIdentifier", "status", "disposition", "retry_after", "reason",
	"statuses", "batchItemFailures",
}

const (
	nameIndex = iota
	nameEntryID
	nameItemIdentifier
	nameStatus
	nameDisposition
	nameRetryAfter
	nameReason
	nameStatuses
	nameFailures
	otherName
)

// Sets of names.
const (
	identifiers = 1<<nameIndex | 1<<nameEntryID | 1<<nameItemIdentifier
	judgements  = 1<<nameItemIdentifier | 1<<nameStatus | 1<<nameDisposition
	lists       = 1<<nameStatuses | 1<<nameFailures
)

// nameOf returns which of the names a JSON string is.
func nameOf(quoted jsontext.Value) int {
	const longest = 6 * len("batchItemFailures") // each letter may be written as \u00XX
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') >= 0 && len(text) <= longest {
		text, _ = jsontext.AppendUnquote(nil, quoted)
	}
	for i, name := range names {
		if bytes.EqualFold(text, []byte(name)) {
			return i
		}
	}
	return otherName
}

// find returns the region of the verdicts in body. It searches the values themselves, arrays, one member of an object,
// and the members of verdicts. A declared answer without any is a sequence of values that are not verdicts. problem is
// why verdicts cannot be read, or may be missing.
func find(body []byte, declared bool) (p region, problem string) {
	f := finder{d: newDecoder(body), body: body, declared: declared}
	f.values()
	switch {
	case f.isCut(), f.d.StackDepth() >= deepest:
		problem = "JSON that is cut short or nested too deeply, which may hide verdicts"
	case f.err != nil && (f.quoted || f.unnamed || suspicious(body)):
		problem = "verdicts in a text that is not JSON"
	case f.err != nil && declared:
		problem = "not JSON"
	case f.err != nil: // as any other text
		return p, ""
	case f.quoted:
		return p, "verdicts in a string of JSON"
	case f.regions > 1:
		return p, "verdicts in several places"
	case f.unnamed && (f.region.form != sequence || f.region.from > 0):
		return p, "a status from 300 to 599 or a disposition that names no message"
	default:
		return f.region, ""
	}
	return p, lineOf(body, f.next()) + problem
}

// isCut reports whether the body ends within JSON.
func (f *finder) isCut() bool {
	return errors.Is(f.err, io.ErrUnexpectedEOF) && (f.d.StackDepth() > 0 || !isText(f.body))
}

// lineOf returns the line of an offset in text, as the beginning of an error.
func lineOf(text []byte, offset int64) string {
	return fmt.Sprintf("line %d: ", 1+bytes.Count(text[:offset], []byte{'\n'}))
}

const deepest = 100 // arrays and objects around a verdict

var errDeep = errors.New("nested too deeply")

func newDecoder(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(text), amqpvalue.Lenient...)
}

// finder reads an answer from its beginning to its end, and keeps nothing of it.
type finder struct {
	d        *jsontext.Decoder
	body     []byte
	err      error // ends the reading
	declared bool  // the answer must hold verdicts

	candidates
}

// candidates are the regions found so far that may hold the verdicts.
//
//	regions  unnamed  the answer
//	0        false    has no verdicts
//	0        true     has the failure of a message that it does not name: an error
//	1        false    has its verdicts in region
//	1        true     has both: an error, unless region is a sequence from the first byte: reading it shows the error
//	more     either   has verdicts in several places: an error
type candidates struct {
	region  region // the last one
	regions int
	unnamed bool // there is a failing status or a disposition without an identifier
	quoted  bool // there are verdicts in a string
}

func (c *candidates) add(p region) {
	c.region = p
	c.regions++
}

// more reports whether another value follows. It reads the end of an array, an object or the text.
func (f *finder) more() bool {
	if f.err != nil {
		return false
	}
	switch f.d.PeekKind() {
	case '{', '[', '"', '0', 't', 'f', 'n':
		return true
	}
	_, f.err = f.d.ReadToken()
	return false
}

// next returns the offset of the next value.
func (f *finder) next() int64 {
	return int64(len(f.body) - len(bytes.TrimLeft(f.body[f.d.InputOffset():], ":"+blanks)))
}

// values reads all values.
func (f *finder) values() {
	values, verdicts := 0, 0
	for f.more() {
		values++
		if f.value(true, f.declared || values > 1) {
			verdicts++
		}
	}
	if f.err == io.EOF { //nolint:errorlint // an unexpected one is wrapped
		f.err = nil
	}
	if values > 1 && f.regions > 0 {
		f.regions++
	}
	if verdicts > 0 || f.declared && f.regions == 0 && values > 0 {
		f.add(region{sequence, 0, int64(len(f.body))})
	}
}

// value reads one value, and returns whether it is a verdict. The members of an object are searched if outer is true.
// item says that the value is in an array or in JSON Lines: a failure without an identifier in unknown members of such
// a verdict does not count.
func (f *finder) value(outer, item bool) (verdict bool) {
	switch kind := f.d.PeekKind(); {
	case kind == '"':
		f.text()
	case kind != '{' && kind != '[':
		f.err = f.d.SkipValue()
	case f.d.StackDepth() >= deepest:
		f.err = errDeep
	case kind == '{':
		return f.object(outer, item)
	default:
		f.list(outer)
	}
	return false
}

// text reads a string. An app may have encoded verdicts as JSON twice.
func (f *finder) text() {
	var quoted jsontext.Value
	if quoted, f.err = f.d.ReadValue(); f.err != nil {
		return
	}
	text := []byte(quoted[1 : len(quoted)-1])
	if bytes.IndexByte(text, '\\') >= 0 {
		text, _ = jsontext.AppendUnquote(nil, quoted) // bytes that are not UTF-8 are replaced
	}
	for _, t := range [...][]byte{text, decoded(text)} {
		if t = bytes.TrimLeft(t, oddBlanks); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
			verdicts, failing := mentioned(t)
			f.quoted = f.quoted || verdicts
			f.unnamed = f.unnamed || failing
		}
	}
}

func (f *finder) list(outer bool) {
	_, f.err = f.d.ReadToken()
	from, values, verdicts := f.d.InputOffset()-1, 0, 0
	for f.more() {
		values++
		if f.value(outer, true) {
			verdicts++
		}
	}
	if verdicts > 0 || f.declared && values == 0 && f.d.StackDepth() == 0 {
		f.add(region{list, from, f.d.InputOffset()})
	}
}

func (f *finder) object(outer, item bool) (verdict bool) {
	before := f.candidates
	var seen int // names
	var failing, within bool
	_, f.err = f.d.ReadToken()
	for f.more() {
		var quoted jsontext.Value
		if quoted, f.err = f.d.ReadValue(); f.err != nil {
			break
		}
		name := nameOf(quoted)
		seen |= 1 << name
		fails, holds := f.member(name, outer)
		failing, within = failing || fails, within || holds
	}
	verdict = seen&identifiers != 0 && seen&judgements != 0
	switch {
	case verdict && item && seen&lists == 0:
		f.unnamed = before.unnamed
	case failing && !verdict:
		f.unnamed = true
	}
	if verdict && within { // beside the verdict itself
		f.regions++
	}
	return verdict
}

// member reads the value of a member, and returns whether it is a failing status or a disposition. If outer is false
// candidates in it do not count, unless the object is a verdict: within returns whether there are any.
func (f *finder) member(name int, outer bool) (failing, within bool) {
	kind, from, before := f.d.PeekKind(), f.next(), f.candidates
	switch {
	case name == nameStatuses || name == nameFailures:
		f.err = f.d.SkipValue()
		f.add(region{statuses + form(name-nameStatuses), from, f.d.InputOffset()}) // #nosec G115 -- 0 or 1
	case name == nameStatus && kind == '0':
		var number jsontext.Value
		number, f.err = f.d.ReadValue()
		status, _ := strconv.ParseFloat(string(number), 64)
		failing = status >= 300 && status < 600
	case name != nameReason && (kind == '{' || kind == '[' || kind == '"'):
		if f.value(false, true) {
			f.add(region{sequence, from, f.d.InputOffset()})
		}
		if !outer {
			within = f.regions > before.regions || f.quoted && !before.quoted
			f.candidates = before
		}
	default:
		f.err = f.d.SkipValue()
	}
	return failing || name == nameDisposition, within
}
