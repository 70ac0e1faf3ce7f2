package declare

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// The broker names the first argument that differs and no more. moreDrift asks again with that one as the broker has
// it, and so on. Each question holds one argument that no broker takes, so that a queue which is deleted at this very
// moment is not created anew in a wrong shape. What the broker compares after that argument stays unnamed: the delivery
// limit and the type, and on quorum queues the TTL.
const (
	argNever   = "x-single-active-consumer" // a boolean
	valueNever = "never"
)

// moreDrift names the arguments of q that differ beside the property that was found first.
func (e *ensurer) moreDrift(ctx context.Context, q *topology.Queue, property, found string) error {
	args := amqp.Table{}
	maps.Copy(args, q.Args)
	o := queueOf(q)
	for range 8 {
		if !adopt(args, property, found) {
			return nil
		}
		args[argNever] = valueNever
		refusal, err := e.ask(ctx, "compare "+o.title, activeQueue(q.Name, args))
		if err != nil || refusal == nil {
			return err
		}
		var ok bool
		if property, found, ok = drifted(refusal); !ok || property == argNever {
			return nil
		}
		e.report(Finding{
			Object: o.title, Problem: ProblemDrift, Wanted: fmt.Sprintf("%s %s", property, o.wanted(property)),
			Found: found, Fix: o.fix(property, found, first(inVhost, refusal.Reason)),
		})
	}
	return nil
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
	case slices.Contains(textArgs, property):
		args[property] = found
		return true
	}
	n, err := strconv.ParseInt(found, 10, 64)
	args[property] = n
	return err == nil
}
