package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	subscriptions = "SIDECAR_SUBSCRIPTIONS"
	placeholder   = "{subscription}"

	// ownPrefix starts the names of variables of one subscription.
	ownPrefix = prefix + "SUB_"

	maxSubscriptions = 64
)

var (
	subscriptionName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	variableName     = regexp.MustCompile(prefix + `[A-Z_]*[A-Z]`)
)

func checkSubscriptions(list string) error {
	if n := len(itemsOf(list)); n > maxSubscriptions {
		return fmt.Errorf("has %d names", n)
	}
	if _, wrong := subscriptionNames(list); len(wrong) > 0 {
		return fmt.Errorf("not names of subscriptions, or there twice: %s", strings.Join(wrong, ", "))
	}
	return nil
}

// subscriptionNames returns the usable names of a list, and the others as they may be shown.
func subscriptionNames(list string) (names, wrong []string) {
	for _, name := range itemsOf(list) {
		if subscriptionName.MatchString(name) && !slices.Contains(names, name) {
			names = append(names, name)
		} else {
			wrong = append(wrong, shown(name))
		}
	}
	return names, wrong
}

// OwnName is what a variable is called for one subscription.
func OwnName(subscription, variable string) string {
	if subscription == "" {
		return variable
	}
	name := strings.ToUpper(strings.ReplaceAll(subscription, "-", "_"))
	return ownPrefix + name + "_" + strings.TrimPrefix(variable, prefix)
}

// read takes the value of a variable from the environment: that for the subscription, else that for all. A variable
// that is not set is reported under the name for the subscription.
func (l *loader) read(v *Variable) {
	of := l.cfg.Subscription
	if of == "" || v.Scoped {
		inherited := l.env[v.Name] != "" || l.env[v.FileVariant()] != ""
		if of != "" {
			v.from = OwnName(of, v.Name)
		}
		if l.order = append(l.order, v.from); v.FileVariant() != "" {
			l.order = append(l.order, v.FileVariant())
		}
		if inherited && l.env[v.from] == "" && l.env[v.FileVariant()] == "" {
			v.from = v.Name
		}
	}
	if alias := v.Tag.Get("alias"); l.env[alias] != "" {
		v.from = alias
		l.order = append(l.order, alias)
	}
	v.raw = l.env[v.from]
	v.text, v.file = v.raw, l.env[v.FileVariant()]
	if v.text == v.Tag.Get("word") { // the default, and more
		v.text = ""
	}
	if names := l.subscriptions(); v.Tag.Get("holds") == placeholder && len(names) > 0 {
		v.text = strings.ReplaceAll(v.text, placeholder, cmp.Or(of, names[0]))
	}
}

// subscriptions returns the usable names in SIDECAR_SUBSCRIPTIONS.
func (l *loader) subscriptions() []string {
	names, _ := subscriptionNames(l.env[subscriptions])
	return names[:min(len(names), maxSubscriptions)]
}

// loadSubscriptions makes a configuration for each subscription, and that of the process from the first one. It reports
// false when there are none. Problems and warnings that several have are reported once.
func (l *loader) loadSubscriptions(rules []Rule) bool {
	var loaders []*loader
	var all []*Config
	for _, name := range l.subscriptions() {
		s := newLoader(l.env, name)
		s.memory = l.memory
		s.checkValues()
		s.checkTogether(rules, all)
		loaders, all, l.order = append(loaders, s), append(all, s.cfg), append(l.order, s.order...)
		for _, p := range s.problems {
			if !slices.Contains(l.problems, p) {
				l.problems = append(l.problems, p)
			}
		}
	}
	for _, s := range loaders {
		for _, w := range s.warnings {
			if slices.ContainsFunc(loaders, func(o *loader) bool { return !slices.Contains(o.warnings, w) }) {
				w = s.cfg.Subscription + ": " + w
			}
			if !slices.Contains(l.warnings, w) {
				l.warnings = append(l.warnings, w)
			}
		}
	}
	if len(all) > 0 {
		process := *all[0]
		process.Subscription, process.Subscriptions = "", all
		l.cfg = &process
	}
	return len(all) > 0
}

// blame records a problem with the first of the variables that it rests on. If that one holds for several subscriptions
// and another one was set for this subscription, the problem is that one's.
func (l *loader) blame(variables []string, reason string) {
	v := l.byName[variables[0]]
	v.bad = true
	blamed := v
	for _, name := range append(slices.Clone(variables), variableName.FindAllString(reason, -1)...) {
		if w := l.byName[name]; blamed == v && v.from == v.Name && w != nil && w.from != w.Name && l.isSet(name) {
			blamed = w
		}
	}
	reason = l.renamed(reason)
	if blamed != v {
		inherited := v.key()
		if v.shown() != "" {
			inherited += "=" + v.shown()
		}
		reason = "does not fit " + inherited + ": " + reason
	}
	l.problems = append(l.problems, Problem{
		Variable: blamed.key(), Value: blamed.shown(), Reason: reason, Allowed: blamed.Allowed(plain),
	})
}

// renamed replaces the names of variables in a text by those that were set for the subscription.
func (l *loader) renamed(text string) string {
	if l.cfg.Subscription == "" {
		return text
	}
	return variableName.ReplaceAllStringFunc(text, func(name string) string {
		if v := l.byName[name]; v != nil && v.from != v.Name && l.isSet(name) {
			return v.key()
		}
		return name
	})
}

// unknown says why a name is not that of one variable.
func (l *loader) unknown(name string) string {
	const removed = "was removed in this release: "
	if instead, went := gone[strings.TrimPrefix(name, prefix)]; went {
		return removed + instead
	}
	var readings []string
	for _, s := range l.subscriptions() {
		variable, found := strings.CutPrefix(name, OwnName(s, ""))
		instead, went := gone[variable]
		switch {
		case found && went:
			return removed + instead
		case found && slices.Contains(l.order, OwnName(s, variable)):
			readings = append(readings, variable+" of subscription "+s)
		case found && slices.Contains(l.order, prefix+variable):
			return "cannot be set for one subscription: " + prefix + variable + " holds for the whole sidecar"
		}
	}
	switch {
	case len(readings) > 1:
		return "can mean " + strings.Join(readings, " or ") + ": give one of them another name in " + subscriptions
	case strings.HasPrefix(name, ownPrefix) && l.env[subscriptions] == "":
		return "there are no subscriptions: set " + subscriptions
	case strings.HasPrefix(name, ownPrefix):
		return "not a variable of " + strings.Join(l.subscriptions(), ", ") + "; " + l.suggestion(name)
	}
	return "unknown name; " + l.suggestion(name)
}
