package declare

import (
	"context"
	"maps"
	"slices"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// The broker names the first argument that differs and no more. drift asks again with that one as the broker has it,
// and so on. Each question holds one argument that no broker takes, so that a queue which is deleted at this moment is
// not created anew in a wrong shape. What the broker compares after that argument stays unnamed: the delivery limit and
// the type, and on quorum queues the TTL.
const (
	argNever   = "x-single-active-consumer" // a boolean
	valueNever = "never"
)

// absentValue is how the broker calls an argument that is not set.
const absentValue = "none"

// drift reports the properties of an object that differ: the one that the refusal names and, of a queue, others.
func (e *ensurer) drift(ctx context.Context, o *object, refusal *amqp.Error) {
	args := amqp.Table{}
	if o.queue != nil {
		maps.Copy(args, o.queue.Args)
	}
	for range 9 {
		property, found, ok := drifted(refusal)
		if !ok || property == argNever {
			return
		}
		if property == topology.ArgType && found == absentValue {
			found = topology.TypeClassic // what older brokers call none
		}
		e.findings = append(e.findings, Finding{
			Object: o.title, Problem: ProblemDrift, Wanted: o.wanted(property), Found: found,
			Fix: o.fix(property, found, first(inVhost, refusal.Reason)),
		})
		if o.queue == nil || !adopt(args, property, found) {
			return
		}
		args[argNever] = valueNever
		if refusal = e.ask(ctx, "compare "+o.title, declareQueue(o.name, args)); refusal == nil {
			return
		}
	}
}

// textArgs are the arguments whose values are texts; all others that a broker compares are integers.
var textArgs = []string{topology.ArgDLX, topology.ArgDLKey, topology.ArgType, topology.ArgStrategy,
	topology.ArgOverflow, "x-queue-mode", "x-queue-leader-locator"}

// adopt puts the broker's value of an argument into args; ok is false when that is not possible.
func adopt(args amqp.Table, property, found string) (ok bool) {
	switch {
	case found == absentValue:
		_, ok = args[property]
		delete(args, property)
		return ok
	case found == unknown:
		return false
	case property == argNever:
		args[property] = found == "true"
		return true
	case slices.Contains(textArgs, property):
		args[property] = found
		return true
	}
	n, err := strconv.ParseInt(found, 10, 64)
	args[property] = n
	return err == nil
}
