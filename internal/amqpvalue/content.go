package amqpvalue

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// AutoType is the default content type that is found by inspecting the body.
const AutoType = "auto"

// maxInspected is how much of a body is read to find its type, in bytes.
const maxInspected = 1 << 20

// DefaultType returns the content type of a body whose message does not have one. With AutoType it is application/json
// for one whole JSON object or array, else "". Of a body over 1 MiB only the first and the last byte that is not blank
// counts.
func DefaultType(setting string, body []byte) string {
	if setting != AutoType {
		return setting
	}
	text := bytes.Trim(body, " \t\r\n")
	if len(text) < 2 || text[0] != '{' && text[0] != '[' || text[len(text)-1] != text[0]+2 || // '{'+2 is '}', '['+2 is ']'
		len(body) <= maxInspected && !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true)) {
		return ""
	}
	return "application/json"
}

var httpCodings = []string{"gzip", "x-gzip", "deflate", "br", "zstd", "compress", "identity"}

// IsHTTPCoding reports whether each item of a content encoding is a content coding of HTTP. Producers set others, such
// as utf-8, which HTTP servers refuse.
func IsHTTPCoding(encoding string) bool {
	if strings.Trim(encoding, " ") != encoding { // a blank at the end would be percent-encoded
		return false
	}
	for item := range strings.SplitSeq(encoding, ",") {
		named := func(coding string) bool { return strings.EqualFold(coding, strings.Trim(item, " ")) }
		if !slices.ContainsFunc(httpCodings, named) {
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
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	return time.Unix(n, 0), err == nil && strings.Trim(fraction, "0123456789") == ""
}

// RealTime returns t, or, for a t beyond the year 9999, the time whose milliseconds were written in the place of
// seconds, if that is in the years 2001 to 2286.
func RealTime(t time.Time) time.Time {
	if meant := time.UnixMilli(t.Unix()).UTC(); t.Year() > 9999 && meant.Year() >= 2001 && meant.Year() <= 2286 {
		return meant
	}
	return t
}
