package topology

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// shortText is what is always left of a text of ours, in bytes.
const shortText = 64

// cuttable are the texts of ours that may be long, the most dispensable first.
var cuttable = []string{
	HeaderFinalAnswer, HeaderFinalProblemDetail, HeaderFinalProblemTitle, HeaderFinalProblemType, HeaderFinalError,
	HeaderFinalDetail,
}

// kept are the headers of ours that are never dropped; x-final-* are not either. Together they are small.
var kept = map[string]bool{
	message.HeaderOriginalQueue: true, message.HeaderOriginalExchange: true, message.HeaderOriginalRoutingKey: true,
	headerOriginalExpiration: true, headerOriginalUserID: true,
}

// shrinkToFrame makes the properties of a parked message fit one frame: first the long texts of ours are cut, then
// headers of the message are dropped, the largest first, and counted in x-final-headers-dropped. A message that cannot
// be parked would be tried for ever.
func shrinkToFrame(pub *amqp.Publishing, frame int) {
	over := HeaderFrameSize(pub) - frame
	for _, key := range cuttable {
		if text, _ := pub.Headers[key].(string); over > 0 && len(text) > shortText {
			short := cut(text, max(len(text)-over, shortText))
			pub.Headers[key] = short
			over -= len(text) - len(short)
		}
	}
	if over <= 0 {
		return
	}
	dropped := int32(0)
	over += entrySize(headerFinalDropped, dropped)
	for _, e := range droppable(pub.Headers) {
		if over <= 0 {
			break
		}
		delete(pub.Headers, e.key)
		over -= e.size
		dropped++
	}
	pub.Headers[headerFinalDropped] = dropped
}

type sized struct {
	key  string
	size int
}

// droppable lists the headers of the message, the largest first; among equals by name, so that the result does not
// depend on the order of a map.
func droppable(h amqp.Table) []sized {
	list := make([]sized, 0, len(h))
	for k, v := range h {
		if !kept[k] && !strings.HasPrefix(k, headerFinalPrefix) {
			list = append(list, sized{k, entrySize(k, v)})
		}
	}
	slices.SortFunc(list, func(a, b sized) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.key, b.key))
	})
	return list
}

// plainText makes s one line of valid UTF-8 of at most limit bytes: it will be read in consoles and logs.
func plainText(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	return cut(s, limit)
}

// cut shortens valid UTF-8 to at most limit bytes without splitting a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
