package deadletter

import (
	"cmp"
	"encoding/json"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Why returns the text that says best why the message failed: the first that says more than its status, those that are
// preferred before the others.
func (f *Facts) Why(preferred ...string) string {
	return firstSpecific(f.Status, append(preferred,
		f.Detail, f.Problem.Title, f.said(), f.Problem.Type, f.Problem.Detail, f.Error)...)
}

// firstSpecific returns the first text that says more than the status, else the first that is not empty.
func firstSpecific(status int, texts ...string) string {
	for _, s := range texts {
		if !vague(s, status) {
			return s
		}
	}
	return cmp.Or(texts...)
}

// vague reports whether s says no more than the status: "Internal Server Error", "Error 500".
func vague(s string, status int) bool {
	known := strings.Fields("about blank http status error exception server " + strings.ToLower(http.StatusText(status)))
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) })
	return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(known, w) })
}

const maxRead = 4 << 10 // bytes of a text that are read for a group

// said returns what the answer says about the error: a member of JSON, the title, <pre> or text of a page, or the first
// line of a text.
func (f *Facts) said() string {
	s := strings.ReplaceAll(f.Answer[:min(len(f.Answer), maxRead)], `\x0d`, "\r")
	s = strings.Trim(s, "\ufeff \t\r\n")
	text := ""
	switch {
	case strings.HasPrefix(s, "<"):
		texts := []string{}
		for _, found := range pages().FindAllStringSubmatch(s, -1) {
			texts = append(texts, html.UnescapeString(found[1]))
		}
		return firstSpecific(f.Status, append(texts, html.UnescapeString(tags().ReplaceAllString(s, " ")))...)
	case strings.HasPrefix(s, "{"), strings.HasPrefix(s, "["): // the text may break off, also within a string
		d := json.NewDecoder(strings.NewReader(brokenEscape().ReplaceAllString(s, "") + `"`))
		text, _ = readText(d, f.Status)
	}
	line, rest, _ := strings.Cut(s, "\n")
	python := strings.HasPrefix(line, "Traceback (most recent call last)")
	for next := range strings.Lines(rest) {
		if python && unicode.IsLetter(rune(next[0])) { // the error is in the last line
			line = next
		}
	}
	return cmp.Or(text, line)
}

// members are those of a JSON object that say why, the best first.
var members = strings.Fields("error message detail title exception msg description reason code errors trace")

// readText reads a value: a string, or what is best of the elements of an array or the members of an object. With an
// error, it returns what it has read before.
func readText(d *json.Decoder, status int) (best string, err error) {
	t, err := d.Token()
	open, nested := t.(json.Delim)
	if best, _ = t.(string); !nested {
		return best, err
	}
	for least := 2 * len(members); err == nil && d.More(); {
		var text string
		rank := 0
		if open == '{' {
			t, _ = d.Token()
			name, _ := t.(string)
			rank = slices.Index(members, strings.ToLower(name))
		}
		text, err = readText(d, status)
		if rank >= 0 && vague(text, status) {
			rank += len(members)
		}
		if text != "" && rank >= 0 && rank < least {
			best, least = text, rank
		}
	}
	_, end := d.Token()
	return best, cmp.Or(err, end)
}

// pattern compiles an expression when it is first used: hardly any process of ours ever needs it.
func pattern(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s) })
}

var (
	brokenEscape = pattern(`\\+(?:u[[:xdigit:]]{0,3})?$`)
	// pages finds the parts of HTML that frameworks write an error into, tags what is not text.
	pages   = pattern(`(?i)<(?:title|pre)\b[^>]*>([^<]*)`)
	tags    = pattern(`(?is)<(?:script|style)\b.*?</(?:script|style)>|<[^>]*(?:>|$)`)
	targets = pattern(`(\w+://[^\s/?#"'<>()]*)[/?#][^\s"'<>()]*`)
	// variable finds what differs between two reports of one error: values behind "=", quoted texts, times, addresses,
	// identifiers and numbers.
	variable = pattern(`(?s)(=\s*\()[^)]*|"(?:[^"\\]|\\.)*(?:"|$)|(?:\B'.*?(?:'\B|$))+|` + "`[^`]*`" + `|“[^”]*”|` +
		`\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?|[\w.+%-]+@[\w-]+(?:\.[\w-]+)+|` +
		`\b[[:xdigit:]]{8}(?:-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}\b|\b0x[[:xdigit:]]+|\d+(?:[.:]\d+)+|` +
		`([[:alpha:]]+)\d{1,3}\b|[[:alnum:]]*\d[[:alnum:]]*`)
)

// maxNormal bounds a normalised error, in bytes: it is shown in a table.
const maxNormal = 160

// normalise removes from an error what differs from one message to the next, so that equal failures have equal texts.
func normalise(s string) string {
	s = targets().ReplaceAllString(strings.ToValidUTF8(s[:min(len(s), maxRead)], ""), "$1/…")
	s = strings.Join(strings.Fields(variable().ReplaceAllString(s, "${1}${2}…")), " ")
	if len(s) > maxNormal {
		s = strings.ToValidUTF8(s[:maxNormal], "") + "…"
	}
	return s
}
