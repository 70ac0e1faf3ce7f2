package config

import (
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing wrong with the configuration.
type Problem struct {
	Variable string
	Value    string // as it may be shown: quoted, cut, "***" for secrets; "" when the variable is not set
	Reason   string
	Allowed  string // "" when the reason says it
}

// String returns one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Variable)
	if p.Value != "" {
		b.WriteString("=" + p.Value)
	}
	b.WriteString(": " + p.Reason)
	if p.Allowed != "" {
		b.WriteString("; allowed: " + p.Allowed)
	}
	return b.String()
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

// Has reports whether there is a problem with the variable.
func (e *Errors) Has(variable string) bool {
	return slices.ContainsFunc(e.Problems, func(p Problem) bool { return p.Variable == variable })
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
