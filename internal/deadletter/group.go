package deadletter

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// GroupKey is what messages that fail in the same way have in common.
type GroupKey struct {
	ID         string `json:"id"`               // twelve hexadecimal digits over the rest
	Reason     string `json:"reason"`           // "" if unknown
	Status     int    `json:"status,omitempty"` // of the last answer; 0 = there was none
	Problem    string `json:"problem"`          // problem type, else the error with its numbers and names taken out
	RoutingKey string `json:"routing_key"`
}

// Group is a number of parked messages that fail in the same way.
type Group struct {
	GroupKey
	Count   int       `json:"count"`
	Foreign int       `json:"foreign,omitempty"` // of those, another service's
	First   time.Time `json:"first,omitzero"`    // parked, if known
	Last    time.Time `json:"last,omitzero"`
	Example string    `json:"example"` // Ref of the first one
}

// Group is the key of the group that m belongs to.
func (m *Message) Group() GroupKey {
	k := GroupKey{Reason: m.Reason, Status: m.Status, Problem: m.Problem.Type, RoutingKey: m.RoutingKey}
	if k.Problem == "" || k.Problem == "about:blank" {
		k.Problem = normalise(cmp.Or(m.Problem.Title, m.Error, m.Detail))
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{k.Reason, strconv.Itoa(k.Status), k.Problem, k.RoutingKey}, "\x00")))
	k.ID = hex.EncodeToString(sum[:6])
	return k
}

// variable finds what differs between two reports of one error: quoted texts, addresses, identifiers and numbers.
var variable = sync.OnceValue(func() *regexp.Regexp { // hardly any process of ours ever needs it
	return regexp.MustCompile(`"[^"]*"|'[^']*'|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|[0-9]+(?:[.:][0-9]+)*`)
})

// maxNormal bounds a normalised error, in bytes: it is shown in a table.
const maxNormal = 160

// normalise removes from an error what differs from one message to the next, so that equal failures have equal texts.
func normalise(s string) string {
	s = strings.Join(strings.Fields(variable().ReplaceAllString(s, "…")), " ")
	if len(s) > maxNormal {
		s = strings.ToValidUTF8(s[:maxNormal], "") + "…"
	}
	return s
}

// maxGroups bounds the number of groups: a routing key may be different in every message.
const maxGroups = 10_000

// grouping collects groups, in the order of their first messages.
type grouping struct {
	byID map[string]*Group
	all  []*Group
}

func (g *grouping) add(m *Message) {
	one := g.find(m)
	one.Count++
	if m.Foreign {
		one.Foreign++
	}
	if m.ParkedAt.IsZero() {
		return
	}
	if one.First.IsZero() || m.ParkedAt.Before(one.First) {
		one.First = m.ParkedAt
	}
	if m.ParkedAt.After(one.Last) {
		one.Last = m.ParkedAt
	}
}

// find returns the group of m. After maxGroups it is one without an id for all further groups.
func (g *grouping) find(m *Message) *Group {
	k := m.Group()
	full := len(g.all) >= maxGroups
	if g.byID[k.ID] == nil && full {
		k = GroupKey{Problem: "(all further groups)"}
	}
	one := g.byID[k.ID]
	if one == nil {
		one = &Group{GroupKey: k}
		if !full {
			one.Example = m.Ref()
		}
		g.byID[k.ID] = one
		g.all = append(g.all, one)
	}
	return one
}
