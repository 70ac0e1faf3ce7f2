package topology

import (
	"slices"
	"strings"
)

// reach lists the queues of the plan that a message published to exchange with key ends in. Exchanges of others are
// not followed: what is bound to them is not ours to know.
func (p *Plan) reach(exchange, key string) []string {
	if exchange == "" && p.queue(key) != nil {
		return []string{key}
	}
	x := p.exchange(exchange)
	var queues []string
	for _, b := range p.Bindings {
		if x != nil && b.Exchange == exchange && x.matches(b, key) && !slices.Contains(queues, b.Queue) {
			queues = append(queues, b.Queue)
		}
	}
	return queues
}

func (x *Exchange) matches(b Binding, key string) bool {
	switch x.Type {
	case "fanout":
		return true
	case "headers": // without arguments it matches everything, with them it depends on the message
		return len(b.Args) == 0
	case "direct":
		return b.Key == key
	case "topic":
		return topicMatch(strings.Split(b.Key, "."), strings.Split(key, "."))
	}
	return false
}

// topicMatch: "*" is one word, "#" any number of words. After a mismatch only the last "#" takes one word more: a key
// of many "#" costs no more than its length times the words.
func topicMatch(pattern, words []string) bool {
	p, w, hash, taken := 0, 0, -1, 0
	for w < len(words) {
		switch {
		case p < len(pattern) && pattern[p] == "#":
			hash, taken = p, w
			p++
		case p < len(pattern) && (pattern[p] == "*" || pattern[p] == words[w]):
			p++
			w++
		case hash >= 0:
			taken++
			p, w = hash+1, taken
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "#" {
		p++
	}
	return p == len(pattern)
}

// WayBack returns the binding by which retries return to the service's queue, nil if they return through the default
// exchange. No publish can prove it. Without it classic queues lose messages when their delay ends; quorum queues keep
// them, and the broker tries again every three minutes.
func (p *Plan) WayBack() *Binding {
	for _, w := range p.Waits {
		if q := p.queue(w.Queue); q != nil {
			if exchange, key, _ := q.DeadLetter(); exchange != "" {
				return &Binding{Exchange: exchange, Key: key, Queue: p.Queue}
			}
		}
	}
	return nil
}
