package amqpvalue

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// lineFields are the fields of a line that are no property of the message.
var lineFields = []string{"exchange", "routing_key", "body", "body_base64", "headers", "header_types", "delivery"}

// plainFields are all fields of a line by name, each with a bit of its own.
var plainFields = func() map[string]plainField {
	fields := map[string]plainField{}
	for _, name := range lineFields {
		fields[name] = plainField{name, 1 << len(fields)}
	}
	for _, p := range properties {
		fields[p.name] = plainField{p.name, 1 << len(fields)}
	}
	return fields
}()

type plainField struct {
	name string
	bit  uint32
}

// decodePlain is Decode for a line as programs write it: strings without escapes, small integers, objects and lists. It
// reads each byte once, and returns false for any other line. Decode then reads it again, and says what is wrong.
func (l *Line) decodePlain(line []byte, ignored []string) bool {
	p := plainReader{line}
	seen := uint32(0)
	for next := byte('{'); p.take(next); next = ',' {
		name, ok := p.text()
		field, known := plainFields[string(name)]
		if !ok || !known || seen&field.bit != 0 || !p.take(':') {
			return false
		}
		seen |= field.bit
		if !l.plainValue(&p, field.name, field.name == "delivery" || slices.Contains(ignored, field.name)) {
			return false
		}
	}
	if l.body != nil {
		l.setJSONBody(l.body)
	}
	return p.take('}') && p.peek() == 0 && len(p.rest) == 0 && l.keyed && (l.Base64 == nil || l.Msg.Body == nil)
}

// plainValue reads the value of a field.
func (l *Line) plainValue(p *plainReader, name string, ignored bool) bool {
	switch p.peek() {
	case '"':
		text, ok := p.text()
		return ok && (ignored || l.plainText(name, text))
	case '{', '[':
		value, ok := p.nested()
		switch {
		case !ok:
			return false
		case ignored:
		case name == "body":
			l.body = value
		case bytes.IndexByte(value, '\\') >= 0: // it may be half of a surrogate pair
			return false
		case name == "headers":
			l.headers = value
		case name == "header_types":
			l.types = value
		default:
			return false
		}
		return true
	}
	n, ok := p.number()
	return ok && (ignored || indexOf(name) >= 0 && l.setValue(name, n) == nil && l.Invalid == nil)
}

func (l *Line) plainText(name string, text []byte) bool {
	switch {
	case name == "body":
		l.Msg.Body = text
	case name == "body_base64":
		l.Base64 = text
	case name == "headers", name == "header_types", len(text) > ShortMax:
		return false
	default:
		return l.setValue(name, string(text)) == nil && l.Invalid == nil
	}
	return true
}

// plainReader reads JSON from the beginning of what is left of a line.
type plainReader struct{ rest []byte }

// peek returns the next byte that is not white space; 0 at the end.
func (p *plainReader) peek() byte {
	for i, c := range p.rest {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			p.rest = p.rest[i:]
			return c
		}
	}
	p.rest = nil
	return 0
}

func (p *plainReader) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// text reads a string without escapes, and returns what is between its quotes.
func (p *plainReader) text() (s []byte, ok bool) {
	if !p.take('"') {
		return nil, false
	}
	end := bytes.IndexByte(p.rest, '"')
	if end < 0 {
		return nil, false
	}
	s, p.rest = p.rest[:end:end], p.rest[end+1:]
	return s, bytes.IndexByte(s, '\\') < 0 && !hasControl(s)
}

// hasControl reports whether there is a byte below 0x20 in s, eight bytes at a time.
func hasControl(s []byte) bool {
	const low, high = 0x2020202020202020, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		if w := binary.LittleEndian.Uint64(s); (w-low)&^w&high != 0 {
			return true
		}
	}
	return slices.ContainsFunc(s, func(c byte) bool { return c < ' ' })
}

// number reads a positive integer that any JSON reader keeps exactly.
func (p *plainReader) number() (n int64, ok bool) {
	digits := 0
	for digits < len(p.rest) && '0' <= p.rest[digits] && p.rest[digits] <= '9' {
		n = n*10 + int64(p.rest[digits]-'0')
		if digits++; digits > 15 {
			return 0, false
		}
	}
	ok = digits == 1 || digits > 1 && p.rest[0] != '0'
	p.rest = p.rest[digits:]
	return n, ok
}

// nested reads an object or a list.
func (p *plainReader) nested() (value []byte, ok bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(p.rest), Lenient...)
	if d.SkipValue() != nil {
		return nil, false
	}
	end := d.InputOffset()
	value, p.rest = p.rest[:end:end], p.rest[end:]
	return value, true
}
