package model

import (
	"maps"
	"slices"
	"time"
)

// death is one entry of x-death: how often a message left a queue for one reason.
type death struct {
	queue, reason, exchange string
	keys                    []string
	count                   int64
	at                      time.Time
	expiration              string // that the message had
}

const headerDeath = "x-death"

// deadLetter takes a message along its queue's dead-letter route.
func (b *Broker) deadLetter(q *queue, e *entry, reason string) {
	m := e.m
	if !q.hasDLX {
		b.drop(q, m, reason+", no dead-letter exchange")
		return
	}
	dead := m.dead(b.o.Version, q.name, reason)
	if q.dlk != "" {
		dead.keys = []string{q.dlk}
	}
	dead.exchange = q.dlx
	q.carry(dead, e, reason)
	to := b.route(q.dlx, dead.keys[0])
	if len(to) == 0 && q.atLeastOnce {
		q.undead = append(q.undead, undead{e, reason})
		return
	}
	if len(to) == 0 {
		b.drop(q, m, reason+", unroutable")
	}
	for _, t := range to {
		// A message that returns to a queue it has been in is an automatic cycle, unless a consumer rejected it since.
		// Being rejected now is reason enough to let it go anywhere.
		if reason != "rejected" && cycle(dead.deaths, t.name) {
			b.drop(q, m, reason+", automatic cycle")
			continue
		}
		b.seq++
		c := *dead
		t.put(&c)
	}
}

// carry is what some versions let a message take along from a quorum queue, and others do not.
func (q *queue) carry(dead *stored, e *entry, reason string) {
	switch v := q.b.o.Version; {
	case v == V40 && q.atLeastOnce && reason == "rejected":
		dead.carried++
	case v >= V43 && q.quorum && !q.atLeastOnce:
		dead.redelivered = e.redelivered
	}
}

func (b *Broker) drop(q *queue, m *stored, why string) {
	b.dropped = append(b.dropped, Dropped{m.p.MessageID, q.name, why})
}

// cycle reports whether no reject is among the deaths since the message last left the target queue.
func cycle(deaths []death, target string) bool {
	at := slices.IndexFunc(deaths, func(d death) bool { return d.queue == target })
	return at >= 0 && !slices.ContainsFunc(deaths[:at+1], func(d death) bool { return d.reason == "rejected" })
}

// dead is a copy of a message that has died once more. The latest death is the first.
func (m *stored) dead(v Version, queue, reason string) *stored {
	c := *m
	c.keys = m.keys
	c.deaths = slices.Clone(m.deaths)
	now := death{
		queue: queue, reason: reason, exchange: m.exchange, keys: m.keys, count: 1, at: time.Now(),
		expiration: m.p.Expiration,
	}
	if v < V40 {
		slices.Reverse(c.deaths) // the order of the earlier deaths changes each time
	}
	if i := slices.IndexFunc(c.deaths, func(d death) bool { return d.queue == queue && d.reason == reason }); i >= 0 {
		old := c.deaths[i]
		c.deaths = slices.Delete(c.deaths, i, i+1)
		now = old
		now.count++
		now.at = time.Now()
	}
	c.deaths = slices.Insert(c.deaths, 0, now)
	c.p.Expiration = ""
	h := Table{}
	maps.Copy(h, m.p.Headers)
	if h["x-first-death-reason"] == nil || v >= V40 && len(m.deaths) == 0 { // not what a publisher says
		h["x-first-death-reason"], h["x-first-death-queue"], h["x-first-death-exchange"] = reason, queue, m.exchange
	}
	if v >= V40 {
		h["x-last-death-reason"], h["x-last-death-queue"], h["x-last-death-exchange"] = reason, queue, m.exchange
	}
	c.p.Headers = h
	return &c
}

// readDeaths takes the history of a message from its headers, if the broker accepts a publisher's: from 4.0 it
// does not.
func readDeaths(v Version, h Table) []death {
	entries, _ := h[headerDeath].([]any)
	if v >= V40 || len(entries) == 0 {
		return nil
	}
	var deaths []death
	for _, e := range entries {
		t, _ := e.(Table)
		var d death
		d.queue, _ = t["queue"].(string)
		d.reason, _ = t["reason"].(string)
		d.exchange, _ = t["exchange"].(string)
		d.count, _ = number(t["count"])
		d.expiration, _ = t["original-expiration"].(string)
		d.at, _ = t["time"].(time.Time)
		keys, _ := t["routing-keys"].([]any)
		for _, k := range keys {
			s, _ := k.(string)
			d.keys = append(d.keys, s)
		}
		deaths = append(deaths, d)
	}
	return deaths
}

func writeDeaths(h Table, deaths []death) {
	if len(deaths) == 0 {
		return
	}
	var entries []any
	for _, d := range deaths {
		keys := make([]any, len(d.keys))
		for i, k := range d.keys {
			keys[i] = k
		}
		t := Table{
			"count": d.count, "exchange": d.exchange, "queue": d.queue, "reason": d.reason, "routing-keys": keys, "time": d.at,
		}
		if d.expiration != "" {
			t["original-expiration"] = d.expiration
		}
		entries = append(entries, t)
	}
	h[headerDeath] = entries
}
