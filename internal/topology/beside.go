package topology

import (
	"fmt"
	"strings"
)

// Beside lists what keeps p from running in one sidecar with the plan of another subscription: objects that both
// declare, and differently, and messages of one that would reach a queue of the other. A problem has two variables:
// that of p and that of the other plan.
func (p *Plan) Beside(other *Plan, subscription string) (all []OptionError) {
	refuse := func(mine, theirs, format string, args ...any) {
		of := parts{mine, theirs}
		for i, plan := range []*Plan{p, other} {
			if plan.FromFile {
				of[i] = "{plan-file}"
			}
		}
		all = append(all, OptionError{variables(of...), fmt.Sprintf(format, args...)})
	}
	described := func(q *Queue) string { return strings.TrimSpace(string(q.Kind) + " " + arguments(q.Args)) }
	for _, q := range p.Queues {
		o := other.queue(q.Name)
		if o == nil {
			continue
		}
		_, mine := queueRole(&q)
		_, theirs := queueRole(o)
		if q.Kind == KindMain && o.Kind == KindMain {
			refuse(mine, theirs, "subscription %s consumes queue %s too", subscription, brief(q.Name))
		} else if described(&q) != described(o) {
			refuse(mine, theirs, "queue %s is declared here as %s, and for subscription %s as %s", brief(q.Name),
				described(&q), subscription, described(o))
		}
	}
	for _, x := range p.Exchanges {
		if o := other.exchange(x.Name); o != nil && o.Type != x.Type && o.Type != "" && x.Type != "" {
			refuse("{exchange-type}", "{exchange-type}", "exchange %s is declared here as %s, and for subscription %s as %s",
				brief(x.Name), x.Type, subscription, o.Type)
		}
	}
	if len(all) > 0 {
		return all // what follows may be a consequence
	}
	p.strays(other, func(through string, r Route, queue string) {
		refuse(through, through, "exchange %s, which subscription %s uses too, routes the key %s to %s and to %s",
			brief(r.Exchange), subscription, quoteKey(r.Key), brief(r.Queue), brief(queue))
	})
	return all
}

// strays calls found for each route that also leads to a queue of the other plan, with the word for the exchange.
func (p *Plan) strays(other *Plan, found func(through string, r Route, queue string)) {
	both := Merge(p, other)
	for _, r := range append(p.PublishRoutes(), other.PublishRoutes()...) {
		through := "{retry-exchange}"
		if r == p.Park || r == other.Park {
			through = "{dlx}"
		}
		for _, q := range both.reach(r.Exchange, r.Key) {
			if (p.queue(q) == nil) != (p.queue(r.Queue) == nil) {
				found(through, r, q)
			}
		}
	}
}
