package config

import (
	"cmp"
	"errors"
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
	names, err := split(list)
	for _, name := range names {
		if !subscriptionName.MatchString(name) {
			return fmt.Errorf("%s is not the name of a subscription", shown(name))
		}
	}
	if len(names) > maxSubscriptions {
		return fmt.Errorf("has %d names", len(names))
	}
	return err
}

// OwnName is what a variable is called for one subscription.
func OwnName(subscription, variable string) string {
	return ownPrefix + strings.ToUpper(strings.ReplaceAll(subscription, "-", "_")) + "_" + strings.TrimPrefix(variable, prefix)
}

// read takes the value of a variable from the environment: that for the subscription, else that for all. A variable that
// is not set is reported under the name for the subscription.
func (l *loader) read(v *Variable) {
	get := func(said string) {
		v.said = said
		v.raw, v.text, v.file = l.env[said], l.env[said], ""
		if variant := v.FileVariant(); variant != "" {
			v.file = l.env[variant]
		}
	}
	get(v.Name)
	if name := l.cfg.Subscription; name != "" && v.own {
		isSet := l.isSet(v.Name)
		if get(OwnName(name, v.Name)); isSet && !l.isSet(v.Name) {
			get(v.Name)
		}
	}
	if names := l.subscriptions(); v.tag.Get("holds") == placeholder && len(names) > 0 {
		v.text = strings.ReplaceAll(v.text, placeholder, cmp.Or(l.cfg.Subscription, names[0]))
	}
}

// subscriptions returns the usable names in SIDECAR_SUBSCRIPTIONS.
func (l *loader) subscriptions() []string {
	var names []string
	for name := range strings.SplitSeq(l.env[subscriptions], ",") {
		name = strings.Trim(name, " \t")
		if subscriptionName.MatchString(name) && !slices.Contains(names, name) && len(names) < maxSubscriptions {
			names = append(names, name)
		}
	}
	return names
}

// checkPlaceholder refuses the name of a subscription where there is none, and in the authority of a URL.
func (l *loader) checkPlaceholder(v *Variable) error {
	if v.tag.Get("holds") != placeholder || !strings.Contains(v.raw, placeholder) {
		return nil
	}
	if l.env[subscriptions] == "" {
		return errors.New(placeholder + " is the name of a subscription: set " + subscriptions)
	}
	v.bad = len(l.subscriptions()) == 0 // a consequence of the wrong list
	scheme, rest, isURL := strings.Cut(v.raw, "://")
	end := "/"
	if scheme == "unix" {
		end = ":"
	}
	if authority, _, _ := strings.Cut(rest, end); isURL && v.Name == "SIDECAR_APP_URL" && strings.Contains(authority, placeholder) {
		return errors.New(placeholder + " can be in the path only")
	}
	return nil
}

// loadSubscriptions makes a configuration for each subscription, and that of the process from the first one. It reports
// false when there are none. Problems that several have are reported once.
func (l *loader) loadSubscriptions(rules []Rule) bool {
	names := l.subscriptions()
	var all []*Config
	warned := map[string][]string{} // names by warning
	var texts []string
	for _, name := range names {
		s := newLoader(l.env, name)
		s.memory = l.memory
		s.checkValues()
		s.checkTogether(rules, all)
		all = append(all, s.cfg)
		for _, variable := range l.ownable() {
			l.order = append(l.order, OwnName(name, variable))
		}
		for _, p := range s.problems {
			if !slices.Contains(l.problems, p) {
				l.problems = append(l.problems, p)
			}
		}
		for _, w := range s.warnings {
			if warned[w] == nil {
				texts = append(texts, w)
			}
			warned[w] = append(warned[w], name)
		}
	}
	for _, w := range texts {
		if of := warned[w]; len(of) < len(names) {
			w = strings.Join(of, ", ") + ": " + w
		}
		l.warnings = append(l.warnings, w)
	}
	if len(all) > 0 {
		process := *all[0]
		process.Subscription, process.Subscriptions = "", all
		l.cfg = &process
	}
	return len(all) > 0
}

// ownable lists the variables that can be set for one subscription, without the prefix.
func (l *loader) ownable() (names []string) {
	for _, v := range l.variables {
		short := strings.TrimPrefix(v.Name, prefix)
		if v.own {
			names = append(names, short)
		}
		if v.own && v.FileVariant() != "" {
			names = append(names, short+fileSuffix)
		}
	}
	return names
}

// blame records a problem with the first of the variables that it rests on. If that one holds for several subscriptions
// and another one was set for this subscription, the problem is that one's.
func (l *loader) blame(variables []string, reason string) {
	v := l.byName[variables[0]]
	v.bad = true
	blamed := v
	for _, name := range append(slices.Clone(variables), variableName.FindAllString(reason, -1)...) {
		if w := l.byName[name]; blamed == v && v.said == v.Name && w != nil && w.said != w.Name && l.isSet(name) {
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
		if v := l.byName[name]; v != nil && v.said != v.Name && l.isSet(name) {
			return v.key()
		}
		return name
	})
}

// unknown says why a name is not that of a variable, or that of several, with the name that was probably meant.
func (l *loader) unknown(name string) string {
	rest, own := strings.CutPrefix(name, ownPrefix)
	names, ownable := l.subscriptions(), l.ownable()
	switch {
	case !own:
		return "unknown name; " + l.suggestion(name)
	case len(names) == 0:
		return "there are no subscriptions: set " + subscriptions
	}
	var readings, others []string
	for _, s := range names {
		key := OwnName(s, "")[len(ownPrefix):]
		if variable, found := strings.CutPrefix(rest, key); found && slices.Contains(ownable, variable) {
			readings = append(readings, variable+" of subscription "+s)
		} else if found && slices.Contains(l.order, prefix+variable) {
			return "cannot be set for one subscription: " + prefix + variable + " holds for the whole sidecar"
		} else if nearest := Nearest(variable, ownable); found && nearest != "" {
			others = append(others, key+nearest)
		}
		for _, variable := range ownable {
			if mistyped, found := strings.CutSuffix(rest, variable); found && Nearest(mistyped, []string{key}) != "" {
				others = append(others, key+variable)
			}
		}
	}
	if len(readings) > 1 {
		return "can mean " + strings.Join(readings, " or ") + ": give one of them another name in " + subscriptions
	}
	if nearest := Nearest(rest, others); nearest != "" {
		return "unknown name; the nearest known name is " + ownPrefix + nearest
	}
	return "not a variable of a subscription; " + subscriptions + " has " + strings.Join(names, ", ")
}
