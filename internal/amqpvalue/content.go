package amqpvalue

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// AutoType is the default content type that is found by looking at the body.
const AutoType = "auto"

// maxInspected is how much of a body is read to find its type, in bytes.
const maxInspected = 1 << 20

// DefaultType returns the content type of a body whose message does not have one. With AutoType it is application/json
// for one whole JSON object or array, else "". Of a body over 1 MiB only the first byte that is not blank is compared.
func DefaultType(setting string, body []byte) string {
	if setting != AutoType {
		return setting
	}
	text := bytes.TrimLeft(body, " \t\r\n")
	if len(text) == 0 || text[0] != '{' && text[0] != '[' ||
		len(body) <= maxInspected && !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true)) {
		return ""
	}
	return "application/json"
}

// IsHTTPCoding reports whether each item of a content encoding is a content coding of HTTP. Producers set others, such
// as utf-8, which HTTP servers refuse.
func IsHTTPCoding(encoding string) bool {
	for item := range strings.SplitSeq(encoding, ",") {
		switch strings.ToLower(strings.TrimSpace(item)) {
		case "gzip", "x-gzip", "deflate", "br", "zstd", "compress", "identity":
		default:
			return false
		}
	}
	return true
}

// timeLayouts are RFC 3339, with a blank in the place of the T, and with a zone of hours alone as PostgreSQL writes it.
var timeLayouts = []string{"2006-01-02T15:04:05Z07:00", "2006-01-02 15:04:05Z07:00",
	"2006-01-02T15:04:05Z07", "2006-01-02 15:04:05Z07"}

// readTime reads the text of a time: one of timeLayouts, or a number of seconds since 1970. Fractions are cut.
func readTime(text string) (at time.Time, ok bool) {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC().Truncate(time.Second), true
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(n, 0), true
	}
	seconds, err := strconv.ParseFloat(text, 64)
	return secondsTime(seconds, err == nil)
}

// secondsTime returns the time of a number that an integer without gaps can hold.
func secondsTime(seconds float64, ok bool) (time.Time, bool) {
	return time.Unix(int64(seconds), 0), ok && math.Abs(seconds) < 1<<53
}

// RealTime returns t, or the time that a publisher meant who wrote milliseconds into a property of seconds. These are
// recognised from 2001 to 2286; as seconds they would be years after 9999.
func RealTime(t time.Time) time.Time {
	if meant := time.UnixMilli(t.Unix()).UTC(); t.Year() > 9999 && meant.Year() >= 2001 && meant.Year() <= 2286 {
		return meant
	}
	return t
}
