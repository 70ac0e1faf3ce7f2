package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// GroupKey is what messages that fail in the same way have in common.
type GroupKey struct {
	ID         string `json:"id"`               // twelve hexadecimal digits over the rest
	Reason     string `json:"reason"`           // "" if unknown
	Status     int    `json:"status,omitempty"` // of the last answer; 0 = there was none
	Problem    string `json:"problem"`          // Why, or the problem type; names and numbers are removed
	RoutingKey string `json:"routing_key"`
}

// Group is a number of parked messages that fail in the same way.
type Group struct {
	GroupKey
	Subscription string `json:"subscription,omitempty"`

	Count   int       `json:"count"`
	Foreign int       `json:"foreign,omitempty"` // of those, another service's
	First   time.Time `json:"first,omitzero"`    // parked, if known
	Last    time.Time `json:"last,omitzero"`
	Example string    `json:"example"` // Ref of the first one
}

// Group is the key of the group that m belongs to.
func (m *Message) Group() GroupKey { return m.group(m.Why()) }

// group is Group with what Why has returned.
func (m *Message) group(why string) GroupKey {
	k := GroupKey{Reason: m.Reason, Status: m.Status, Problem: m.Problem.Type, RoutingKey: m.RoutingKey}
	// A problem type that says more than the status names the group as it is, unless the app gave a reason of its own.
	if !vague(m.Detail, m.Status) || vague(k.Problem, m.Status) {
		k.Problem = normalise(why)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{k.Reason, strconv.Itoa(k.Status), k.Problem, k.RoutingKey}, "\x00")))
	k.ID = hex.EncodeToString(sum[:6])
	return k
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
	of := m.Subscription
	if g.byID[k.ID+of] == nil && full {
		k, of = GroupKey{Problem: "(all further groups)"}, ""
	}
	one := g.byID[k.ID+of]
	if one == nil {
		one = &Group{GroupKey: k, Subscription: of}
		if !full {
			one.Example = m.Ref()
		}
		g.byID[k.ID+of] = one
		g.all = append(g.all, one)
	}
	return one
}
