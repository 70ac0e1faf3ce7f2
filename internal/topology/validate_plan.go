package topology

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Validate reports everything in the plan by which a broker of any version could lose messages, joined. Each error
// begins with a JSON path such as $.queues[2].arguments.x-message-ttl. Each rule was learned from a loss;
// docs/topologies.md has the stories. It talks to no broker: a valid plan can still meet objects that do not fit, see
// declare.Ensure.
func (p *Plan) Validate() error {
	return errors.Join(p.problems(nil)...)
}

// problems lists what Validate joins, without what may follow from values that could not be read.
func (p *Plan) problems(unread []string) []error {
	v := planValidator{Plan: p, unread: unread}
	v.names()
	v.ownQueue()
	v.counts()
	v.bindings()
	v.deadLetters()
	v.waits()
	v.rejects()
	v.parking()
	v.redriving()
	v.arguments()
	return v.errs
}

// Beside lists what keeps p from running in one sidecar with the plan of another subscription: objects that both
// declare, and differently, and messages of one that would reach a queue of the other. A
// problem has two variables: that of p and that of the other plan.
func (p *Plan) Beside(other *Plan, subscription string) (all []OptionError) {
	refuse := func(variables on, format string, args ...any) {
		for i := range variables {
			if [...]*Plan{p, other}[i].FromFile {
				variables[i] = "SIDECAR_PLAN_FILE"
			}
		}
		all = append(all, OptionError{variables, fmt.Sprintf(format, args...)})
	}
	described := func(q *Queue) string { return strings.TrimSpace(string(q.Kind) + " " + arguments(q.Args)) }
	variables := map[Kind]string{KindMain: "SIDECAR_QUEUE", KindRetry: "SIDECAR_RETRY_QUEUE", KindDLQ: "SIDECAR_DLQ"}
	for _, q := range p.Queues {
		if o := other.queue(q.Name); o != nil && q.Kind == KindMain && o.Kind == KindMain {
			refuse(on{"SIDECAR_QUEUE", "SIDECAR_QUEUE"}, "subscription %s consumes queue %s too", subscription, brief(q.Name))
		} else if o != nil && described(&q) != described(o) {
			refuse(on{variables[q.Kind], variables[o.Kind]}, "queue %s is declared here as %s, and for subscription %s as %s",
				brief(q.Name), described(&q), subscription, described(o))
		}
	}
	for _, x := range p.Exchanges {
		if o := other.exchange(x.Name); o != nil && o.Type != x.Type && o.Type != "" && x.Type != "" {
			refuse(on{"SIDECAR_EXCHANGE_TYPE", "SIDECAR_EXCHANGE_TYPE"}, "exchange %s is declared here as %s, and for "+
				"subscription %s as %s", brief(x.Name), x.Type, subscription, o.Type)
		}
	}
	if len(all) > 0 {
		return all // what follows may be a consequence
	}
	both := Merge(p, other)
	for _, r := range append(p.PublishRoutes(), other.PublishRoutes()...) {
		variable := "SIDECAR_RETRY_EXCHANGE"
		if r == p.Park || r == other.Park {
			variable = "SIDECAR_DLX"
		}
		for _, q := range both.reach(r.Exchange, r.Key) {
			if (p.queue(q) == nil) != (p.queue(r.Queue) == nil) {
				refuse(on{variable, variable}, "exchange %s, which subscription %s uses too, routes the key %s to %s and to %s",
					brief(r.Exchange), subscription, quoteKey(r.Key), brief(r.Queue), brief(q))
			}
		}
	}
	return all
}

// planValidator collects while it goes: no rule ends the others.
type planValidator struct {
	*Plan
	errs   []error
	unread []string // JSON paths of values that could not be read or cannot be used: nothing else is said about them
}

// refuse records what is wrong at a JSON path of the plan, unless a value there could not be read.
func (v *planValidator) refuse(wrong bool, path, format string, args ...any) {
	if wrong && v.read(path) {
		v.errs = append(v.errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
	}
}

// unusable is refuse for a value that other rules rest on.
func (v *planValidator) unusable(wrong bool, path, format string, args ...any) {
	v.refuse(wrong, path, format, args...)
	if wrong {
		v.unread = append(v.unread, path)
	}
}

// misrouted is refuse for what is wrong with a route. It records nothing while names, bindings or dead-letter routes
// are unknown: the route might be right.
func (v *planValidator) misrouted(wrong bool, path, format string, args ...any) {
	unknown := slices.ContainsFunc(v.unread, func(u string) bool {
		_, arg, isArg := strings.Cut(u, ".arguments.")
		listed := within(u, at("exchanges")) || within(u, at("queues")) || within(u, at("bindings"))
		return listed && (!isArg || arg == ArgDLX || arg == ArgDLKey)
	})
	v.refuse(wrong && !unknown, path, format, args...)
}

// read reports whether every value at and below a JSON path could be read and can be used.
func (v *planValidator) read(path string) bool {
	return !slices.ContainsFunc(v.unread, func(u string) bool { return within(u, path) || within(path, u) })
}

// within reports whether a JSON path is another one or leads into it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// at returns the JSON path of these steps: a number is an index, a text the name of a field.
func at(steps ...any) string { return below("$", steps...) }

// below is at, from another path on.
func below(base string, steps ...any) string {
	var path strings.Builder
	path.WriteString(base)
	for _, step := range steps {
		switch name, isName := step.(string); {
		case !isName:
			fmt.Fprintf(&path, "[%d]", step)
		case plainField.MatchString(name):
			path.WriteString("." + name)
		default:
			fmt.Fprintf(&path, "[%q]", name)
		}
	}
	return path.String()
}

var plainField = regexp.MustCompile(`^[$\w-]+$`)

func (v *planValidator) names() {
	seen := map[string]bool{}
	check := func(list string, i int, what, name string) {
		path, fault := at(list, i, "name"), objectFault(name)
		v.refuse(name == "", path, "%s has no name", what)
		v.refuse(fault != "", path, "%s %s %s", what, brief(name), fault)
		v.refuse(seen[what+name], path, "%s %q has two roles: names must differ", what, name)
		seen[what+name] = true
	}
	for i, e := range v.Exchanges {
		check("exchanges", i, "exchange", e.Name)
		path := at("exchanges", i, "type")
		v.refuse(e.Type != "" && !slices.Contains(exchangeTypes, e.Type), path,
			"exchange %q has type %q: use %s", e.Name, e.Type, strings.Join(exchangeTypes, ", "))
		t := predeclared[e.Name]
		v.refuse(t != "" && e.Type != "" && e.Type != t, path, "exchange %q is the broker's own and of type %s, not %s",
			e.Name, t, e.Type)
	}
	for i, q := range v.Queues {
		check("queues", i, "queue", q.Name)
	}
	key := func(path, key string) {
		fault := nameFault(key)
		v.unusable(fault != "", path, "routing key %s %s", brief(key), fault)
	}
	for i, b := range v.Bindings {
		key(at("bindings", i, "key"), b.Key)
	}
	for i, w := range v.Waits {
		key(at("waits", i, "key"), w.Key)
	}
	key(at("park", "key"), v.Park.Key)
	key(at("redrive", "key"), v.Redrive.Key)
}

// arguments: only those whose effect is known, and no argument that loses messages.
func (v *planValidator) arguments() {
	for _, d := range v.ownProperties() {
		breaks := d.Judgement == Breaks && v.read(v.field(d.Name, "kind"))
		v.refuse(breaks, v.argument(d.Name, d.Property), "%s: %s=%v: %s", d.Object, d.Property, d.Found, d.Reason)
	}
}
