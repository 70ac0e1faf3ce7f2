package dispatch

import (
	"encoding/json"
	"errors"
	entities "html"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sidecar/internal/message"
)

// oracle says in a slow and simple way which messages an answer to a batch calls done: it holds the whole answer as a
// tree, and whatever is wrong in it calls nothing done.
type oracle struct {
	ids    [][]string // of each message, with its index
	bad    []bool     // an object says that the message is not done, or that cannot be excluded
	named  []bool
	allBad bool // no message is done
	all    bool // every message must be named
	any    bool // there is a verdict
	hidden bool // there is a verdict in a text
}

// tree is a value of JSON. Members that are there twice are there twice.
type tree struct {
	value any // a text, a json.Number, a bool or nil; json.Delim of an array or an object
	names []string
	items []*tree
}

// callsDone returns for each message whether an answer with this body calls it done.
func callsDone(body string, ids [][]string, declared bool) []bool {
	o := oracle{ids: ids, bad: make([]bool, len(ids)), named: make([]bool, len(ids))}
	body = strings.TrimPrefix(strings.ReplaceAll(body, "\x1e", " "), "\ufeff")
	var text string
	if json.Unmarshal([]byte(body), &text) == nil && strings.HasPrefix(strings.Trim(body, blanks), `"`) {
		body = text
	}
	trimmed := strings.Trim(body, blanks)
	roots, err := parseTree(body)
	begins := strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")
	for _, root := range roots {
		o.walk(root, true, 1, declared || len(roots) > 1)
	}
	switch {
	case err != nil:
		o.allBad = declared || o.any || o.allBad || begins && (errors.Is(err, io.ErrUnexpectedEOF) || quotesAName(body)) || mentionsAny(body) || !isHTML(body) && mentionsAny(decode(body))
	case declared && !o.any && trimmed != "" && (len(roots) != 1 || roots[0].value != json.Delim('[') || roots[0].items != nil):
		o.allBad = true
	}
	o.allBad = o.allBad || len(body) > (64+len(ids))<<10 && !isHTML(body)
	done := make([]bool, len(ids))
	for i := range ids {
		done[i] = !o.allBad && !o.hidden && !o.bad[i] && (!o.all || o.named[i])
	}
	return done
}

func quotesAName(body string) bool {
	for _, name := range names {
		if strings.Contains(strings.ToLower(body), `"`+strings.ToLower(name)+`"`) && name != "status" && name != "disposition" && name != "reason" && name != "retry_after" {
			return true
		}
	}
	return false
}

const otherKey = `["'\\\]]*\s*(:|=)>?[\s+]*`

var (
	ofMessages = regexp.MustCompile(`(?i)(^|[^\w-])(index|entryId|itemIdentifier)` + otherKey + `[^\s>+]`)
	ofVerdicts = regexp.MustCompile(`(?i)(^|[^\w-])(status|disposition)` + otherKey + `[^\s>+]`)
	ofLists    = regexp.MustCompile(`(?i)(^|[^\w-])(statuses|batchItemFailures)` + otherKey + `[^\s>+]`)
	ofFailures = regexp.MustCompile(`(?i)(^|[^\w-])(status` + otherKey + `[345]\d\d(\D|$)|disposition` + otherKey + `["'\\]*(ack|retry|requeue|park|discard))`)
)

func mentionsVerdicts(text string) bool {
	return ofMessages.MatchString(text) && ofVerdicts.MatchString(text) || ofLists.MatchString(text)
}

// mentionsAny reports whether a text that is not JSON may hold verdicts or a failure.
func mentionsAny(text string) bool {
	return !isHTML(text) && (mentionsVerdicts(text) || ofFailures.MatchString(text))
}

var ofCodes = regexp.MustCompile(`&[\w#;-]*|%[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}`)

// decode decodes a text of a web page, of a URL or of a script.
func decode(text string) string {
	return ofCodes.ReplaceAllStringFunc(text, func(code string) string {
		if c, err := strconv.ParseUint(code[max(1, len(code)-2):], 16, 8); err == nil && code[0] != '&' {
			return string([]byte{byte(c)})
		}
		return entities.UnescapeString(code)
	})
}

func isHTML(text string) bool {
	begin := strings.ToLower(strings.TrimLeft(text, "\v\f\u0085\u00a0\ufeff"+blanks))
	return strings.HasPrefix(begin, "<!doctype") || strings.HasPrefix(begin, "<html")
}

// walk reads a value. The members of an object are searched if outer is true, or if the object is a verdict.
func (o *oracle) walk(t *tree, outer bool, depth int, item bool) {
	if text, isText := t.value.(string); isText {
		for _, text := range []string{text, decode(text)} {
			if text = strings.TrimLeft(text, blanks); strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
				o.hidden = o.hidden || mentionsVerdicts(text)
				o.allBad = o.allBad || ofFailures.MatchString(text)
			}
		}
	}
	switch t.value {
	case json.Delim('['):
		o.allBad = o.allBad || depth > most
		for _, v := range t.items {
			o.walk(v, outer, depth+1, true)
		}
	case json.Delim('{'):
		isVerdict := o.object(t)
		for i, v := range t.items {
			special := strings.EqualFold(t.names[i], "statuses") || strings.EqualFold(t.names[i], "batchItemFailures") || strings.EqualFold(t.names[i], "reason")
			if (outer || isVerdict) && !special {
				o.walkMember(v, depth+1, isVerdict)
			}
		}
	}
}

// walkMember reads a member. The status of what is in a verdict is not that of the batch.
func (o *oracle) walkMember(t *tree, depth int, within bool) {
	before := o.allBad
	o.walk(t, false, depth, true)
	if within {
		o.allBad = before
	}
}

// object adds what an object says, and returns whether it is a verdict.
func (o *oracle) object(t *tree) bool {
	var statuses, dispositions, identifiers []any
	failing, lambda, bulk := false, false, false
	for i, name := range t.names {
		v := t.items[i]
		number, isNumber := v.value.(json.Number)
		f, _ := number.Float64()
		switch strings.ToLower(strings.ReplaceAll(name, "ſ", "s")) {
		case "index":
			identifiers = append(identifiers, v.value)
		case "entryid":
			bulk, identifiers = true, append(identifiers, v.value)
		case "itemidentifier":
			lambda, identifiers = true, append(identifiers, v.value)
		case "status":
			statuses = append(statuses, v.value)
			failing = failing || isNumber && f >= 300 && f < 600
		case "disposition":
			dispositions, failing = append(dispositions, v.value), true
		case "statuses":
			o.any, o.all = true, true
			o.allBad = o.allBad || v.value != json.Delim('[')
			for _, entry := range v.items {
				if entry.value != json.Delim('{') || !o.object(entry) {
					o.allBad = true
				}
			}
		case "batchitemfailures":
			o.any = true
			o.failures(v)
		}
	}
	isVerdict := lambda || identifiers != nil && (statuses != nil || dispositions != nil)
	switch {
	case isVerdict:
		o.any, o.all = true, o.all || bulk
		o.say(identifiers, len(statuses) < 2 && len(dispositions) < 2 && isGood(slices.Concat(statuses, []any{nil})[0], slices.Concat(dispositions, []any{nil})[0]))
	case failing:
		o.allBad = true
	}
	return isVerdict
}

// failures adds the messages that AWS Lambda takes for failed.
func (o *oracle) failures(t *tree) {
	o.allBad = o.allBad || t.value != json.Delim('[') && t.value != nil
	for _, item := range t.items {
		var identifiers []any
		for i, name := range item.names {
			if strings.EqualFold(name, "itemIdentifier") {
				identifiers = append(identifiers, item.items[i].value)
			}
		}
		o.say(identifiers, false)
	}
}

func isGood(status, disposition any) bool {
	text, _ := disposition.(string)
	var words []string
	for word := range strings.SplitSeq(strings.ToLower(text), ",") {
		if word = strings.Trim(word, " \t\r\n"); word != "" && !slices.Contains(message.Dispositions[:], word) {
			words = append(words, "unknown")
		} else if word != "" {
			words = append(words, word)
		}
	}
	if words = slices.Compact(words); len(words) > 1 {
		return false
	}
	if len(words) == 1 && words[0] != "unknown" {
		return words[0] == "ack" || words[0] == "discard"
	}
	number, _ := status.(json.Number)
	n, err := number.Int64()
	return status == "SUCCESS" || err == nil && n >= 200 && n <= 299
}

// say adds what a verdict says of every message that it may be about.
func (o *oracle) say(identifiers []any, good bool) {
	about := make([]bool, len(o.ids))
	for _, v := range identifiers {
		text, isText := v.(string)
		number, _ := v.(json.Number)
		n, err := number.Int64()
		for i, ids := range o.ids {
			about[i] = about[i] || isText && text != "" && slices.Contains(ids, text) || err == nil && n == int64(i)
		}
	}
	o.allBad = o.allBad || !slices.Contains(about, true)
	for i := range about {
		o.bad[i] = o.bad[i] || about[i] && !good
		o.named[i] = o.named[i] || about[i] && good
	}
}

// parseTree reads all values of a text.
func parseTree(text string) (roots []*tree, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return roots, nil
		}
		if err != nil {
			return roots, err
		}
		root, err := parseValue(d, t)
		roots = append(roots, root)
		if err != nil {
			return roots, unexpected(err)
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseValue(d *json.Decoder, token json.Token) (t *tree, err error) {
	t = &tree{value: token}
	delim, isDelim := token.(json.Delim)
	for isDelim && d.More() {
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return t, unexpected(err)
			}
			text, _ := name.(string)
			t.names, t.items = append(t.names, text), append(t.items, &tree{})
		} else {
			t.items = append(t.items, &tree{})
		}
		token, err := d.Token()
		if err == nil {
			t.items[len(t.items)-1], err = parseValue(d, token)
		}
		if err != nil {
			return t, unexpected(err)
		}
	}
	if isDelim {
		_, err = d.Token()
	}
	return t, unexpectedOrNil(err)
}

func unexpectedOrNil(err error) error {
	if err == nil {
		return nil
	}
	return unexpected(err)
}
