package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// prefix starts the name of every variable that is ours.
const prefix = "SIDECAR_"

// Rule judges the configuration as a whole, in a package that makes something of it, such as the topology. It is called
// when the variables have been judged one by one, with everything that could be understood and the defaults for the
// rest; for each subscription, with those before it. reject records a problem for each reason, with the first of the
// variables that they rest on; if one of these variables already has a problem, nothing is reported. The variables are
// named as those of all subscriptions; reject finds the one that was set.
type Rule func(c *Config, before []*Config, reject func(variables []string, reasons ...string))

// Load reads environ, a list of NAME=value as os.Environ returns it, and nothing else but the files it names. memory is
// how many bytes the process may use, usually the limit of its cgroup; 0 means unknown. The error is always *Errors and
// lists every problem.
func Load(environ []string, memory int64, rules ...Rule) (*Config, error) {
	l := newLoader(readEnvironment(environ), "")
	l.memory = memory
	l.checkValues()
	if !l.loadSubscriptions(rules) {
		l.checkTogether(rules, nil)
	}
	l.checkUnknown()
	if len(l.problems) > 0 {
		return nil, &Errors{Problems: l.sorted()}
	}
	l.cfg.warnings = l.warnings
	return l.cfg, nil
}

// checkValues judges the variables one by one.
func (l *loader) checkValues() {
	for _, v := range l.variables {
		switch v.bad = v.Tag.Get("holds") == placeholder && strings.Contains(v.text, placeholder); {
		case v.bad && l.env[subscriptions] == "":
			l.reject(v.Name, "%s is the name of a subscription: set %s", placeholder, subscriptions)
		case v.bad: // a consequence of a wrong list
		default:
			if err := v.check(); err != nil {
				l.reject(v.Name, "%v", err)
			}
		}
	}
}

// checkTogether judges what the variables come to, and makes settings of them.
func (l *loader) checkTogether(rules []Rule, before []*Config) {
	l.checkAMQP()
	l.checkManagement()
	l.checkListen()
	l.checkPurpose()
	l.checkApp()
	l.checkWindow()
	l.checkRetry()
	l.checkPlanFile()
	l.checkOTel()
	for _, judge := range rules {
		judge(l.cfg, before, func(variables []string, reasons ...string) {
			if !l.ok(variables...) {
				return
			}
			for _, reason := range reasons {
				l.blame(variables, reason)
			}
		})
	}
	l.cfg.settings = make([]Setting, 0, len(l.variables))
	for _, v := range l.variables {
		l.cfg.settings = append(l.cfg.settings, l.setting(v))
	}
}

// loader collects while it goes: no check ends the load.
type loader struct {
	cfg       *Config
	env       map[string]string // without empty values: an empty value means unset
	variables []*Variable       // as documented
	byName    map[string]*Variable
	order     []string // names of variables, file variants included, as documented
	memory    int64    // bytes, 0 = unknown

	problems []Problem
	warnings []string
}

func readEnvironment(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := env[name]; !twice && name != "" && value != "" { // the first one counts, as for os.Getenv
			env[name] = value
		}
	}
	return env
}

// newLoader reads the variables of a subscription, or those of the process without one.
func newLoader(env map[string]string, subscription string) *loader {
	l := &loader{cfg: &Config{Subscription: subscription}, env: env, byName: map[string]*Variable{}}
	for _, s := range sections(l.cfg) {
		for _, v := range s.Variables {
			l.byName[v.Name] = v
			l.read(v)
		}
		s.parse()
		l.variables = append(l.variables, s.Variables...)
	}
	return l
}

// reject records a problem with a variable, whose value it adds.
func (l *loader) reject(name, format string, args ...any) {
	l.blame([]string{name}, fmt.Sprintf(format, args...))
}

// demoteOTel turns problems with OpenTelemetry variables into warnings.
func (l *loader) demoteOTel() {
	l.problems = slices.DeleteFunc(l.problems, func(p Problem) bool {
		isOTel := strings.HasPrefix(p.Variable, "OTEL_")
		if isOTel {
			l.warnings = append(l.warnings, p.String()+" (not used: tracing is off)")
		}
		return isOTel
	})
}

func (l *loader) warn(name, format string, args ...any) {
	l.warnings = append(l.warnings, l.byName[name].key()+": "+l.renamed(fmt.Sprintf(format, args...)))
}

// ok reports that nothing was found wrong with the variables so far, so that rules between them make sense.
func (l *loader) ok(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return l.byName[name].bad })
}

// isSet reports whether the configuration says something about the variable.
func (l *loader) isSet(name string) bool {
	return l.byName[name].text != "" || l.byName[name].file != ""
}

// sorted puts problems into the order of the documentation, unknown names last.
func (l *loader) sorted() []Problem {
	place := func(p Problem) int {
		if i := slices.Index(l.order, p.Variable); i >= 0 {
			return i
		}
		return len(l.order)
	}
	slices.SortStableFunc(l.problems, func(a, b Problem) int { return place(a) - place(b) })
	return l.problems
}

// Problem is one thing wrong with the configuration.
type Problem struct {
	Variable string
	Value    string // as it may be shown: quoted, cut, "***" for secrets; "" when the variable is not set
	Reason   string
	Allowed  string // "" when the reason says it
}

// String returns one line.
func (p Problem) String() string {
	line := p.Variable
	if p.Value != "" {
		line += "=" + p.Value
	}
	line += ": " + p.Reason
	if p.Allowed != "" {
		line += "; allowed: " + p.Allowed
	}
	return line
}

// Errors is everything wrong with the configuration, in the order of the documentation.
type Errors struct{ Problems []Problem }

// Error returns one line per problem.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxShown is how much of a value a problem repeats, in bytes.
const maxShown = 100

// shown makes a value fit to be printed on one line of a terminal or a log.
func shown(v string) string {
	if len(v) > maxShown {
		return strconv.QuoteToASCII(v[:maxShown]) + "…"
	}
	return strconv.QuoteToASCII(v)
}
