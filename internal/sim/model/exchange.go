package model

import (
	"maps"
	"slices"
	"strings"
)

type exchange struct {
	name, kind string
	bindings   []binding
}

type binding struct {
	key, queue string
}

func (x *exchange) bind(b binding) {
	if !slices.Contains(x.bindings, b) {
		x.bindings = append(x.bindings, b)
	}
}

// route returns the queues a message with this key goes to, each once, in the order of their names.
func (b *Broker) route(exchange, key string) []*queue {
	if exchange == "" {
		if q := b.queues[key]; q != nil {
			return []*queue{q}
		}
		return nil
	}
	x := b.exchanges[exchange]
	if x == nil {
		return nil
	}
	var names []string
	for _, bound := range x.bindings {
		if x.matches(bound.key, key) && !slices.Contains(names, bound.queue) {
			names = append(names, bound.queue)
		}
	}
	slices.Sort(names)
	var to []*queue
	for _, n := range names {
		to = append(to, b.queues[n])
	}
	return to
}

func (x *exchange) matches(pattern, key string) bool {
	switch x.kind {
	case "fanout":
		return true
	case "topic":
		return topic(strings.Split(pattern, "."), strings.Split(key, "."))
	}
	return pattern == key
}

// topic matches words: * is one, # any number.
func topic(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return topic(pattern[1:], words) || len(words) > 0 && topic(pattern, words[1:])
	case len(words) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == words[0]) && topic(pattern[1:], words[1:])
}

// publish routes a message and returns how many queues got it.
func (b *Broker) publish(exchange, key string, p *Properties, body []byte) int {
	to := b.route(exchange, key)
	for _, q := range to {
		b.seq++
		q.put(&stored{exchange: exchange, keys: []string{key}, p: *p, body: body, deaths: readDeaths(b.o.Version, p.Headers)})
	}
	return len(to)
}

func (b *Broker) deleteQueue(q *queue) {
	q.cancelAll()
	q.deleted = true
	if q.timer != nil {
		q.timer.Stop()
	}
	delete(b.queues, q.name)
	for _, x := range b.exchanges {
		x.bindings = slices.DeleteFunc(x.bindings, func(bound binding) bool { return bound.queue == q.name })
	}
}

// reroute tries again what at-least-once dead-lettering has kept because it led nowhere.
func (b *Broker) reroute() {
	for _, name := range slices.Sorted(maps.Keys(b.queues)) {
		q := b.queues[name]
		undead := q.undead
		q.undead = nil
		for _, d := range undead {
			b.deadLetter(q, d.e, d.reason)
		}
	}
}
