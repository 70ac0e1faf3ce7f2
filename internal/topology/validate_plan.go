package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// rules are what a plan has to keep so that a broker of any version keeps its messages. Each one was learned from a
// loss; docs/topologies.md has the stories.
var rules = []func(*Plan) []error{
	names, ownQueue, references, oneReject, waits, parking, loops, quorumArguments, foreignArguments, sharedReturn,
}

// Validate reports every rule the plan breaks, joined. It talks to no broker: a valid plan can still meet objects
// that do not fit, see Ensure.
func (p *Plan) Validate() error {
	var errs []error
	for _, rule := range rules {
		errs = append(errs, rule(p)...)
	}
	return errors.Join(errs...)
}

func names(p *Plan) []error {
	var errs []error
	seen := map[string]bool{}
	for _, e := range p.Exchanges {
		errs = append(errs, checkName("exchange", e.Name))
		if e.Type != "" && !slices.Contains(exchangeTypes, e.Type) {
			errs = append(errs, fmt.Errorf("exchange %q has type %q: use %s", e.Name, e.Type, strings.Join(exchangeTypes, ", ")))
		}
		if t := predeclared[e.Name]; t != "" && e.Type != "" && e.Type != t {
			errs = append(errs, fmt.Errorf("exchange %q is the broker's own and of type %s, not %s", e.Name, t, e.Type))
		}
		if seen["e:"+e.Name] {
			errs = append(errs, fmt.Errorf("exchange %q has two roles: names must differ", e.Name))
		}
		seen["e:"+e.Name] = true
	}
	for _, q := range p.Queues {
		errs = append(errs, checkName("queue", q.Name))
		if seen["q:"+q.Name] {
			errs = append(errs, fmt.Errorf("queue %q has two roles: names must differ", q.Name))
		}
		seen["q:"+q.Name] = true
	}
	for _, b := range p.Bindings {
		if len(b.Key) > maxName {
			errs = append(errs, fmt.Errorf("binding key %q is %d bytes long: at most %d", b.Key, len(b.Key), maxName))
		}
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func ownQueue(p *Plan) []error {
	q := p.queue(p.Queue)
	switch {
	case q == nil || q.Kind != KindMain:
		return []error{fmt.Errorf("the service's queue %q is not in the plan", p.Queue)}
	case p.MaxRetries < 0:
		return []error{fmt.Errorf("max retries is %d: at least 0", p.MaxRetries)}
	case p.MaxRetries > 0 && len(p.Waits) == 0:
		return []error{fmt.Errorf("max retries is %d, but there is no queue to wait in", p.MaxRetries)}
	}
	return nil
}

// references: nothing is bound or dead-lettered to something the plan does not know.
func references(p *Plan) []error {
	var errs []error
	for _, b := range p.Bindings {
		if b.Exchange == "" {
			errs = append(errs, fmt.Errorf("queue %q cannot be bound to the default exchange", b.Queue))
		} else if p.exchange(b.Exchange) == nil {
			errs = append(errs, fmt.Errorf("queue %q is bound to exchange %q, which is not in the plan", b.Queue, b.Exchange))
		}
		if p.queue(b.Queue) == nil {
			errs = append(errs, fmt.Errorf("binding of %q: queue %q is not in the plan", b.Exchange, b.Queue))
		}
	}
	for i := range p.Queues {
		q := &p.Queues[i]
		exchange, key, ok := q.DeadLetter()
		if ok && len(p.reach(exchange, key)) == 0 {
			errs = append(errs, fmt.Errorf("queue %q dead-letters to exchange %q with key %q, which reaches no queue: its "+
				"dead letters would be lost", q.Name, exchange, key))
		}
	}
	return errs
}

// oneReject: a queue has one dead-letter route, so one path at most can be taken by rejecting.
func oneReject(p *Plan) []error {
	var errs []error
	q, rejects := p.queue(p.Queue), 0
	for _, w := range p.Waits {
		if !w.ByReject {
			continue
		}
		if rejects++; rejects > 1 {
			errs = append(errs, fmt.Errorf("wait path %s: a second path cannot leave by reject, a queue has one dead-letter "+
				"route", w.Tier))
		}
		if q == nil {
			continue
		}
		exchange, key, ok := q.DeadLetter()
		if !ok || !slices.Equal(p.reach(exchange, key), []string{w.Queue}) {
			errs = append(errs, fmt.Errorf("wait path %s leaves by reject, but queue %q does not dead-letter to %q alone",
				w.Tier, q.Name, w.Queue))
		}
	}
	return errs
}
