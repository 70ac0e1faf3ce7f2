package deadletter

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Why returns the first text that says more than the status: the detail, the problem's title, what the answer says, the
// problem's type and detail, then the error.
func (f *Facts) Why() string {
	if s := firstSpecific(f.Status, f.Detail, f.Problem.Title); !vague(s, f.Status) {
		return s
	}
	return firstSpecific(f.Status, f.Detail, f.Problem.Title, f.said(), f.Problem.Type, f.Problem.Detail, f.Error)
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

// vague reports whether s says no more than the status: "Internal Server Error", "Error 500", "One or more validation
// errors occurred.", or a problem type that names the status.
func vague(s string, status int) bool {
	s = s[:min(len(s), maxRead)]
	if statusTypes().MatchString(s) {
		return true
	}
	known := strings.Fields("about blank http status error errors exception server an one or more validation occurred " +
		"while processing your request " + strings.ToLower(http.StatusText(status)))
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) })
	return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(known, w) })
}

const maxRead = 4 << 10 // bytes of a text that are read for a group

// said returns what the answer says about the error: a member of JSON or all of it, the title, <pre> or text of a page,
// or the first line of a text.
func (f *Facts) said() string {
	s := strings.ReplaceAll(f.Answer[:min(len(f.Answer), maxRead)], `\x0d`, "\r")
	s = strings.Trim(s, "\ufeff \t\r\n")
	texts := []string{}
	switch {
	case strings.HasPrefix(s, "<"):
		for _, found := range pages().FindAllStringSubmatch(s, -1) {
			texts = append(texts, unescapeHTML.Replace(found[1]))
		}
		return firstSpecific(f.Status, append(texts, unescapeHTML.Replace(tags().ReplaceAllString(s, " ")))...)
	case jsonStart().MatchString(s): // the text may break off, also within a string
		line := unquoted().ReplaceAllString(strings.Join(strings.Fields(s), " "), "$1$2$3$4")
		return cmp.Or(firstSpecific(f.Status, append(outerTexts(s), jsonTexts(s)...)...), line)
	case len(s) > 2 && (s[0] == '"' || s[0] == '\'') && strings.IndexByte(s[1:], s[0]) == len(s)-2:
		s = s[1 : len(s)-1] // the text is not a value within it
	}
	line, rest, _ := strings.Cut(s, "\n")
	python := strings.HasPrefix(line, "Traceback (most recent call last)")
	for next := range strings.Lines(rest) {
		if python && unicode.IsLetter(rune(next[0])) { // the error is in the last line
			line = next
		}
	}
	return line
}

// members are those of a JSON object that say why, the best first.
var members = strings.Fields(
	"error message detail title exception details msg defaultMessage errorMessage error_message error_description " +
		"description reason stack code errors trace")

// outerTexts returns the texts of these members, the best first, except within a member of another name: that may be
// the request, repeated.
func outerTexts(s string) []string {
	byRank := make([][]string, len(members))
	d := json.NewDecoder(strings.NewReader(s + `"`)) // the text may break off within a string
	var read func(rank int, outer bool) error
	read = func(rank int, outer bool) error {
		t, err := d.Token()
		if text, ok := t.(string); ok && outer && rank >= 0 {
			byRank[rank] = append(byRank[rank], text)
		}
		open, nested := t.(json.Delim)
		if !nested {
			return err
		}
		for err == nil && d.More() {
			at, inside := rank, outer
			if open == '{' {
				t, _ = d.Token()
				name, _ := t.(string)
				at = slices.IndexFunc(members, func(m string) bool { return strings.EqualFold(m, name) })
				inside = outer && at >= 0
			}
			err = read(at, inside)
		}
		_, end := d.Token()
		return cmp.Or(err, end)
	}
	_ = read(-1, true)
	return slices.Concat(byRank...)
}

// jsonTexts returns the texts of these members at any depth, the best first, then that of an array of texts.
func jsonTexts(s string) (texts []string) {
	found := member().FindAllStringSubmatch(s, -1)
	for _, name := range slices.Concat(members, []string{""}) { // "" is the text at the start of an array
		for _, m := range found {
			if text := ""; strings.EqualFold(m[1], name) && json.Unmarshal([]byte(`"`+m[2]+`"`), &text) == nil {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// pattern compiles an expression when it is first used: hardly any process of ours ever needs it.
func pattern(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s) })
}

var (
	// jsonStart is not met by "[ERROR] …", member ends where the JSON breaks off.
	jsonStart = pattern(`^[{\[]\s*[\n{}"\[\]]`)
	member    = pattern(`(?i)(?:^|"(` + strings.Join(members, "|") + `)"\s*:)[\s\[]*` +
		`"((?:[^"\\[:cntrl:]]|\\u[[:xdigit:]]{4}|\\[^u])*)`)
	// unquoted finds the names of members, and values that are sentences; other strings are only passed over.
	unquoted = pattern(`"(\w+)"(:)|"([^"\\]* [^"\\]*)"|("(?:[^"\\]|\\.)*(?:"|$))`)
	// statusTypes are URIs that frameworks give as the type of every problem with one status.
	statusTypes = pattern(`^https?://(?:tools\.ietf\.org|(?:www\.)?rfc-editor\.org|httpstatuses\.\w+|developer\.mozilla\.org)/`)
	// pages finds the parts of HTML that frameworks write an error into, tags what is not text.
	pages   = pattern(`(?i)<(?:title|pre)\b[^>]*>([^<]*)`)
	tags    = pattern(`(?is)<(?:script|style)\b.*?(?:</(?:script|style)>|$)|<[^>]*(?:>|$)`)
	targets = pattern(`(\w+://[^\s/?#"'<>()]*)[/?#][^\s"'<>()]*`)
	// variable finds what differs between two reports of one error: values behind "=", quoted texts, paths of files,
	// times, addresses, identifiers and numbers.
	variable = pattern(`(?s)(=\s*\()[^)]*|"(?:[^"\\]|\\.)*(?:"|$)|(?:\B'.*?(?:'\B|$))+|` + "`[^`]*`" + `|“[^”]*”|(?:/[\w.@+-]+){3,}|` +
		`\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:\d\d? )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ` +
		`[\d:, ]*\d(?: ?(?:GMT|UTC|[+-]\d{4}))?|` +
		`\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?|[\w.+%-]+@[\w-]+(?:\.[\w-]+)+|` +
		`\b[[:xdigit:]]{8}(?:-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}\b|\b0x[[:xdigit:]]+|\d+(?:[.:]\d+)+|` +
		`([[:alpha:]]+)\d{1,3}\b|[[:alnum:]]*\d[[:alnum:]]*`)
)

var unescapeHTML = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&#34;", `"`, "&#39;", "'", "&#x27;",
	"'", "&nbsp;", " ", "&amp;", "&")

const (
	maxNormal = 160 // bytes of a normalised error, which is shown in a table
	// maxVarying bounds what it is made of, in bytes: the time that variable takes is quadratic.
	maxVarying = 512
)

// normalise removes from an error what differs from one message to the next, so that equal failures have equal texts.
func normalise(s string) string {
	s = targets().ReplaceAllString(strings.ToValidUTF8(s[:min(len(s), maxVarying)], ""), "$1/…")
	s = strings.Join(strings.Fields(variable().ReplaceAllString(s, "${1}${2}…")), " ")
	if len(s) > maxNormal {
		s = strings.ToValidUTF8(s[:maxNormal], "") + "…"
	}
	return s
}
