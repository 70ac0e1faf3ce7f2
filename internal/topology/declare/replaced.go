package declare

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// compared is an object as the last check saw it that compared its properties, with the depth that was known then. A
// measurement after it may be of another object with the same name.
type compared struct {
	properties   amqp.Table // nil: not seen yet
	at, measured time.Time
	ready        int
}

// checked records that a check which began at that time found the object: as the plan has it, unless replaced has
// recorded what the check saw.
func (e *sighting) checked(o *object, at time.Time) {
	e.at = at
	if e.compared.properties == nil && !o.unseen && o.active != nil {
		if e.compared.properties = o.found; o.found == nil {
			e.compared.properties = o.properties
		}
	}
	e.compared.at, e.compared.measured, e.compared.ready = at, e.measured, e.ready
}

// replaced counts and returns an object that another client has deleted and declared again with other properties: those
// of an object never change. mu is locked.
func (s *Sightings) replaced(o *object, found topology.Found) []Redeclared {
	properties := found.Exchanges[o.name]
	if o.queue != nil {
		properties = found.Queues[o.name]
	}
	if properties == nil || s.seen[o.title] == nil {
		return nil
	}
	var again []Redeclared
	e := s.seen[o.title]
	if e.lost == nil && !same(e.compared.properties, properties) {
		if !e.compared.at.IsZero() { // what was seen since then may be the new object
			e.at, e.measured, e.ready = e.compared.at, e.compared.measured, e.compared.ready
		}
		s.lose(o, e.at) // the check of another subscription that saw it since then has counted it
		again = s.back(o.title)
	}
	s.sight(o.title).compared.properties = properties
	return again
}

// same reports whether an object can have both properties; nil: not known. A queue declared without a type has the
// type that the broker chose.
func same(before, after amqp.Table) bool {
	if before == nil {
		return true
	}
	for _, tables := range [][2]amqp.Table{{before, after}, {after, before}} {
		for name, value := range tables[0] {
			other := tables[1][name]
			if fmt.Sprint(value) != fmt.Sprint(other) && (name != topology.ArgType || value != nil && other != nil) {
				return false
			}
		}
	}
	return true
}
