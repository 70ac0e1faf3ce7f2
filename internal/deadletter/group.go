package deadletter

import (
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
	k := GroupKey{Reason: m.Reason, Status: m.Status, Problem: m.ProblemType, RoutingKey: m.RoutingKey}
	if k.Problem == "" || k.Problem == "about:blank" {
		k.Problem = normalise(firstOf(m.ProblemTitle, m.Error, m.Detail))
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{k.Reason, strconv.Itoa(k.Status), k.Problem, k.RoutingKey}, "\x00")))
	k.ID = hex.EncodeToString(sum[:6])
	return k
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
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

// grouping collects groups.
type grouping struct {
	byID map[string]*Group
	all  []*Group
	rest *Group // those after maxGroups
}

func (g *grouping) add(m *Message) {
	k := m.Group()
	one := g.byID[k.ID]
	if one == nil {
		one = g.open(k, m)
	}
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

func (g *grouping) open(k GroupKey, m *Message) *Group {
	if len(g.all) >= maxGroups {
		if g.rest == nil {
			g.rest = &Group{GroupKey: GroupKey{Problem: "(all further groups)"}}
			g.all = append(g.all, g.rest)
		}
		return g.rest
	}
	if g.byID == nil {
		g.byID = map[string]*Group{}
	}
	one := &Group{GroupKey: k, Example: m.Ref()}
	g.byID[k.ID] = one
	g.all = append(g.all, one)
	return one
}
