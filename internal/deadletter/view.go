package deadletter

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"unicode"
	"unicode/utf8"

	"sidecar/internal/amqpvalue"
)

// View is one line of a list: a parked message without its body. It holds none of the message's memory.
type View struct {
	Ref string `json:"ref"`
	Facts
	Group   string `json:"group"`             // id
	Failure string `json:"failure,omitempty"` // Why
}

// Full is a message with everything in it.
type Full struct {
	View
	Exchange   amqpvalue.ShortString `json:"exchange"` // of the delivery from the dead-letter queue
	Key        amqpvalue.ShortString `json:"key"`      // likewise
	Properties amqpvalue.Properties  `json:"properties"`
	Headers    amqpvalue.TypedTable  `json:"headers"`
	Journey    []Step                `json:"journey"`
	Body       *Body                 `json:"body,omitempty"`
}

// Body is a message body for people: at most so many bytes of it.
type Body struct {
	Format    string `json:"format"` // json (indented), text, hex (a dump) or empty
	Text      string `json:"text"`
	Size      int    `json:"size"`      // in bytes, of all of it
	Truncated bool   `json:"truncated"` // Text is of the beginning only
}

// View returns what a list shows of m.
func (m *Message) View() View {
	why := m.Why()
	return View{m.Ref(), m.Facts, m.group(why).ID, why}
}

// Full returns all of m, with at most maxBody bytes of its body; 0 or less leaves the body out.
func (m *Message) Full(maxBody int) *Full {
	d := &m.Properties
	f := &Full{
		View: m.View(), Exchange: amqpvalue.ShortString(d.Exchange), Key: amqpvalue.ShortString(d.RoutingKey),
		Properties: amqpvalue.PropertiesOf(d), Headers: amqpvalue.TypedTable(d.Headers), Journey: m.Journey(),
	}
	if f.Headers == nil {
		f.Headers = amqpvalue.TypedTable{}
	}
	if maxBody > 0 {
		f.Body = showBody(d.Body, maxBody)
	}
	return f
}

// showBody makes text of a body: indented when it is JSON, as it is when it is text, a dump of bytes otherwise.
func showBody(b []byte, limit int) *Body {
	s := &Body{Format: "empty", Size: len(b)}
	if len(b) == 0 {
		return s
	}
	var indented bytes.Buffer
	// Indenting can multiply the size: JSON that becomes too large is shown unchanged.
	if len(b) <= limit && json.Valid(b) && json.Indent(&indented, b, "", "  ") == nil && indented.Len() <= 4*limit {
		s.Format, s.Text = "json", valid(indented.String())
		return s
	}
	s.Truncated = len(b) > limit
	b = b[:min(len(b), limit)]
	if t, ok := textOf(b, s.Truncated); ok {
		s.Format, s.Text = "text", t
		return s
	}
	s.Format, s.Text = "hex", hex.Dump(b)
	return s
}

// textOf returns b as text when it is some; a cut may have gone through its last rune.
func textOf(b []byte, cut bool) (string, bool) {
	for n := 1; cut && n < utf8.UTFMax && !utf8.Valid(b); n++ {
		b = b[:len(b)-1]
	}
	binary := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }
	return string(b), utf8.Valid(b) && !bytes.ContainsFunc(b, binary)
}
