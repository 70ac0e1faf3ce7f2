package topology

import (
	"errors"
	"fmt"
	"slices"
)

// OptionError is something wrong with options, and the variables it comes from.
type OptionError struct {
	// Variables are those of the configuration that the judgement rests on, set or not. The first one is to blame.
	Variables []string

	// Reason does not repeat the value of the variable to blame.
	Reason string
}

// ValidateOptions lists everything that keeps Build from making a plan. Of two mistakes that have a variable in common,
// the later one may be a consequence of the earlier one.
func ValidateOptions(o Options) []OptionError {
	c := newOptionValidator(o)
	if c.b == nil {
		c.refuse(true, on{"SIDECAR_TOPOLOGY"}, "not a topology: use one of %s",
			presetsWith(func(*blueprint) bool { return true }))
		return c.mistakes
	}
	c.checkOptions()
	c.checkRetries()
	c.checkNames()
	c.checkClashes()
	c.checkBindings()
	return c.mistakes
}

// refusal joins what ValidateOptions says, one line each, without what may be a consequence. It is nil when there is
// nothing to say.
func refusal(o *Options) error {
	var errs []error
	var blamed []string
	values := o.Values()
	for _, p := range ValidateOptions(*o) {
		if slices.ContainsFunc(p.Variables, func(v string) bool { return slices.Contains(blamed, v) }) {
			continue
		}
		name := p.Variables[0]
		blamed = append(blamed, name)
		if v := values[name]; v != "" {
			name += fmt.Sprintf("=%q", v)
		}
		errs = append(errs, fmt.Errorf("%s: %s", name, p.Reason))
	}
	return errors.Join(errs...)
}
