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
	var errs []error
	for _, found := range p.problems(nil) {
		errs = append(errs, found)
	}
	return errors.Join(errs...)
}

// problem is something wrong with a plan, at one JSON path or several.
type problem struct {
	paths []string
	text  string
}

// Error begins with the first path.
func (p problem) Error() string { return p.paths[0] + ": " + p.text }

// problems lists what Validate joins, without what may follow from values that could not be read.
func (p *Plan) problems(unread []string) []problem {
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
	return v.found
}

// planValidator collects while it goes: no rule ends the others.
type planValidator struct {
	*Plan
	found  []problem
	unread []string // JSON paths of values that could not be read or cannot be used: nothing else is said about them
}

// refuse records what is wrong at a JSON path of the plan, unless a value there could not be read.
func (v *planValidator) refuse(wrong bool, path, format string, args ...any) {
	if wrong && v.read(path) {
		v.found = append(v.found, problem{[]string{path}, fmt.Sprintf(format, args...)})
	}
}

// refuseBoth is refuse for two values that do not fit together.
func (v *planValidator) refuseBoth(wrong bool, path, other, format string, args ...any) {
	if wrong && v.read(path) {
		v.found = append(v.found, problem{[]string{path, other}, fmt.Sprintf(format, args...)})
		v.unread = append(v.unread, path)
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
		_, arg, isArg := strings.Cut(u, ".arguments") // .x-max-length, or ["x max"]
		listed := within(u, at("exchanges")) || within(u, at("queues")) || within(u, at("bindings"))
		return listed && (!isArg || arg == "."+ArgDLX || arg == "."+ArgDLKey)
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
	seen := map[string]string{}
	check := func(list string, i int, what, name string) {
		path, fault := at(list, i, "name"), objectFault(name)
		v.unusable(name == "", path, "%s has no name", what)
		v.unusable(fault != "", path, "%s %s %s", what, brief(name), fault)
		v.refuseBoth(seen[what+name] != "", path, seen[what+name], "%s %q has two roles: names must differ", what, name)
		seen[what+name] = path
	}
	for i, e := range v.Exchanges {
		check("exchanges", i, "exchange", e.Name)
		path := at("exchanges", i, "type")
		v.unusable(e.Type != "" && !slices.Contains(exchangeTypes, e.Type), path,
			"exchange %q has type %q: use %s", e.Name, e.Type, strings.Join(exchangeTypes, ", "))
		t := predeclared[e.Name]
		v.refuseBoth(t != "" && e.Type != "" && e.Type != t, path, at("exchanges", i, "name"), "exchange %q is the broker's "+
			"own and of type %s, not %s: set that type, or use another exchange", e.Name, t, e.Type)
	}
	for i, q := range v.Queues {
		check("queues", i, "queue", q.Name)
	}
	// A key that is the name of a queue is judged there.
	key := func(path, key string) {
		fault := nameFault(key)
		v.unusable(fault != "" && v.queue(key) == nil, path, "routing key %s %s", brief(key), fault)
	}
	for i, b := range v.Bindings {
		key(at("bindings", i, "key"), b.Key)
	}
	for i, w := range v.Waits {
		key(at("waits", i, "key"), w.Key)
	}
	for _, q := range v.Queues {
		_, routing, _ := q.DeadLetter()
		key(v.argument(q.Name, ArgDLKey), routing)
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
