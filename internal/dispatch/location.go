package dispatch

import (
	"bytes"
	"net/url"
	"strings"
)

const (
	maxLocation = 2 << 10 // bytes of a Location that are read
	maxShown    = 256     // bytes of a Location that are shown
)

// shownLocation returns scheme, host and path of a Location as ASCII, cut to maxShown bytes; "" if it cannot be read.
// The rest may be a secret or a part of the message: user information, query, fragment, parameters of the path.
func shownLocation(location []byte) string {
	if i := bytes.IndexAny(location, "?#"); i >= 0 {
		location = location[:i]
	}
	if i := bytes.LastIndexByte(location, '%'); i >= len(location)-2 && i >= 0 { // cut within an escape
		location = location[:i]
	}
	u, err := url.Parse(strings.TrimSpace(string(location)))
	if err != nil || u.Opaque != "" {
		return ""
	}
	u.User, u.RawPath = nil, ""
	u.Path, _, _ = strings.Cut(u.Path, ";")
	text := u.String()
	return text[:min(len(text), maxShown)]
}
