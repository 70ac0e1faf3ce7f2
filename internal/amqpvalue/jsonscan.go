package amqpvalue

import (
	"bytes"
	"encoding/json"
	"iter"
)

// CheckJSON returns what is wrong with a text that is not exactly one JSON value.
func CheckJSON(raw []byte) error {
	if json.Valid(raw) {
		return nil
	}
	return json.Unmarshal(raw, new(any)) // checks the text before it reads anything
}

// JSONFields returns the names and values of a JSON object as they are in the text, which CheckJSON must have accepted.
func JSONFields(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		r := jsonReader{rest: object}
		r.skip(0)
		r.rest = r.rest[1:]
		for r.more('}') {
			name := r.raw()
			r.skip(':')
			if !yield(name, r.raw()) {
				return
			}
		}
	}
}

// jsonReader reads valid JSON: it does not check for the end of the text.
type jsonReader struct {
	rest     []byte                 // not read yet
	skipName func(name string) bool // headers to leave out
	wire     int                    // bytes of the values so far, in AMQP
	cost     int                    // bytes of memory
}

// skip passes over space, and over one other byte.
func (r *jsonReader) skip(other byte) {
	for len(r.rest) > 0 && (r.rest[0] <= ' ' || r.rest[0] == other) {
		r.rest = r.rest[1:]
	}
}

// more reports whether there is another value before the end of an object or a list, and passes over that end.
func (r *jsonReader) more(end byte) bool {
	if r.skip(','); r.rest[0] != end {
		return true
	}
	r.rest = r.rest[1:]
	return false
}

// raw passes over a value and returns it as it is in the text.
func (r *jsonReader) raw() []byte {
	r.skip(0)
	n := 0
	switch r.rest[0] {
	case '"':
		n = textEnd(r.rest)
	case '{', '[':
		n = nestedEnd(r.rest)
	default:
		for n < len(r.rest) && r.rest[n] > ' ' && r.rest[n] != ',' && r.rest[n] != ']' && r.rest[n] != '}' {
			n++
		}
	}
	value := r.rest[:n:n]
	r.rest = r.rest[n:]
	return value
}

// text reads a JSON string.
func (r *jsonReader) text() string {
	raw := r.raw()
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // it is valid
	return s
}

// textEnd is the length of the JSON string at the beginning of b.
func textEnd(b []byte) int {
	for n := 1; ; {
		n += bytes.IndexByte(b[n:], '"') + 1
		begin := n - 2
		for b[begin] == '\\' {
			begin--
		}
		if (n-2-begin)%2 == 0 { // the quote is not escaped
			return n
		}
	}
}

// nestedEnd is the length of the object or the list at the beginning of b.
func nestedEnd(b []byte) int {
	depth := 0
	for n := 0; ; n++ {
		switch b[n] {
		case '"':
			n += textEnd(b[n:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return n + 1
			}
		}
	}
}
