package dispatch

// escapes says which bytes are percent-encoded.
type escapes [256]bool

var (
	// escapeValue is for header values: control bytes, so that no value can end its line; bytes above ASCII, which
	// servers decode in different ways; and '%', so that decoding gives back exactly what was published.
	escapeValue = newEscapes("%")
	// escapeAttribute is CloudEvents' own rule for ce-* values.
	escapeAttribute = newEscapes("% \"")
	// escapePath is for a path segment.
	escapePath = newEscapes("% \"#<>?[\\]^`{|}/")
)

func newEscapes(also string) *escapes {
	var e escapes
	for c := range e {
		e[c] = c < 0x20 || c > 0x7e
	}
	for i := range len(also) {
		e[also[i]] = true
	}
	return &e
}

// appendEscaped appends v with the bytes in e percent-encoded. A space at either end is encoded too: HTTP strips it.
func appendEscaped[T string | []byte](dst []byte, v T, e *escapes) []byte {
	last := len(v) - 1
	from := 0
	for i := 0; i <= last; i++ {
		c := v[i]
		if !e[c] && (c != ' ' || i != 0 && i != last) {
			continue
		}
		dst = append(dst, v[from:i]...)
		dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		from = i + 1
	}
	return append(dst, v[from:]...)
}

const upperHex = "0123456789ABCDEF"
