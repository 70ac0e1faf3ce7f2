package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// prefix starts the name of every variable that is ours.
const prefix = "SIDECAR_"

// Option changes how Load judges.
type Option func(*loader)

// MemoryLimit sets how many bytes the process may use, usually the limit of its cgroup. It bounds SIDECAR_MEMORY; 0
// means unknown.
func MemoryLimit(bytes int64) Option { return func(l *loader) { l.memory = bytes } }

// Rule adds a judgement on the configuration as a whole, by a package that knows more about it. It is called when the
// variables have been judged one by one, with everything that could be understood and the defaults for the rest. reject
// records a problem with the first of the variables that the reason rests on; it leaves out what may follow from a
// problem that one of them has already.
func Rule(judge func(c *Config, reject func(reason string, variables ...string))) Option {
	return func(l *loader) {
		l.rules = append(l.rules, func() {
			judge(l.cfg, func(reason string, variables ...string) {
				if l.ok(variables...) {
					l.reject(variables[0], "%s", reason)
				}
			})
		})
	}
}

// Load reads environ, a list of NAME=value as os.Environ returns it, and nothing else but the files it names. The error
// is always *Errors and lists every problem.
func Load(environ []string, options ...Option) (*Config, error) {
	l := newLoader(environ)
	for _, o := range options {
		o(l)
	}
	l.parse()
	l.readSecrets()
	l.checkRules()
	l.checkService()
	l.checkAMQP()
	l.checkListen()
	l.checkPublish()
	l.checkOutbox()
	l.checkPurpose()
	l.checkApp()
	l.checkWindow()
	l.checkRetry()
	l.checkTopology()
	l.checkRequest()
	l.checkOTel()
	l.checkUnknown()
	for _, judge := range l.rules {
		judge()
	}
	if len(l.problems) > 0 {
		return nil, &Errors{Problems: l.sorted()}
	}
	l.cfg.warnings = l.warnings
	l.cfg.settings = l.settings()
	return l.cfg, nil
}

// loader collects while it goes: no check ends the load.
type loader struct {
	cfg      *Config
	env      map[string]string // without empty values: an empty value means unset
	sections []*section
	byName   map[string]*variable
	order    []string // names of variables, file variants included, as documented
	memory   int64    // bytes, 0 = unknown
	rules    []func() // from outside

	problems []Problem
	warnings []string
}

func newLoader(environ []string) *loader {
	l := &loader{cfg: &Config{}, env: map[string]string{}, byName: map[string]*variable{}}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := l.env[name]; !twice && value != "" { // the first one counts, as for os.Getenv
			l.env[name] = value
		}
	}
	l.sections = sections(l.cfg)
	for _, s := range l.sections {
		for _, v := range s.variables {
			v.text = l.env[v.name]
			l.byName[v.name] = v
			l.order = append(l.order, v.name)
			if variant := v.fileVariant(); variant != "" {
				v.file = l.env[variant]
				l.order = append(l.order, variant)
			}
		}
	}
	return l
}

// parse fills the structs, one at a time: the library's errors name the field, which is unique in a struct only.
func (l *loader) parse() {
	for _, s := range l.sections {
		// Never nil, and nothing in it that is not ours: with a nil map the library reads the process's environment.
		environment := map[string]string{}
		for _, v := range s.variables {
			if v.text != "" {
				environment[v.name] = v.text
			}
		}
		err := env.ParseWithOptions(s.target, env.Options{Environment: environment, Prefix: s.prefix, FuncMap: parsers})
		var all env.AggregateError
		if !errors.As(err, &all) {
			continue
		}
		for _, err := range all.Errors {
			l.parseProblem(s, err)
		}
	}
}

func (l *loader) parseProblem(s *section, err error) {
	var missing env.VarIsNotSetError
	var wrong env.ParseError
	switch {
	case errors.As(err, &missing):
		l.reject(missing.Key, "required and not set")
	case errors.As(err, &wrong):
		i := slices.IndexFunc(s.variables, func(v *variable) bool { return v.field == wrong.Name })
		l.reject(s.variables[i].name, "%v", wrong.Err)
	default: // a struct this package got wrong; its tests find that
		panic(err)
	}
}

// readSecrets puts a handle on its file into every secret whose file variant is set, and reads every secret once.
func (l *loader) readSecrets() {
	for _, v := range l.byName {
		if !v.secret() {
			continue
		}
		if v.file != "" && v.text != "" {
			l.reject(v.name, "set together with %s: only one of them can count", v.fileVariant())
			continue
		}
		s, _ := reflect.TypeAssert[Secret](v.value)
		if v.file != "" {
			s = newSecret(&source{name: v.fileVariant(), path: v.file})
			v.value.Set(reflect.ValueOf(s))
		}
		if !s.IsSet() {
			continue
		}
		from := s.from()
		from.check = secretChecks[v.name]
		value, err := from.current()
		if err == nil && v.file == "" && from.check != nil {
			err = from.check(value)
		}
		if err != nil {
			l.reject(v.name, "%v", err)
		}
	}
}

// secretChecks hold for every value of a secret, also for those read later. Their errors repeat no part of it.
var secretChecks = map[string]func(string) error{
	"SIDECAR_AMQP_URL": checkAMQPURLs, "SIDECAR_AMQP_USERNAME": checkCredential, "SIDECAR_AMQP_PASSWORD": checkCredential,
	"SIDECAR_APP_TOKEN": checkToken, "SIDECAR_CONTROL_TOKEN": checkControlToken,
	"SIDECAR_CONTROL_READ_TOKEN": checkControlToken, "SIDECAR_PUBLISH_TOKEN": checkControlToken,
}

// reject records a problem with a variable, whose value it adds.
func (l *loader) reject(name, format string, args ...any) {
	v := l.byName[name]
	v.bad = true
	p := Problem{Variable: v.key(), Value: v.shown(), Reason: fmt.Sprintf(format, args...), Allowed: v.allowed(plain)}
	l.problems = append(l.problems, p)
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
	l.warnings = append(l.warnings, l.byName[name].key()+": "+fmt.Sprintf(format, args...))
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
