package message

import (
	"slices"
	"strings"
)

// Globs matches names against patterns; '*' stands for any bytes, '?' for one.
type Globs struct {
	all      bool
	fold     bool
	patterns []string
}

// NewGlobs returns the patterns; fold ignores the case of ASCII letters. Without a pattern no name matches.
func NewGlobs(patterns []string, fold bool) Globs {
	g := Globs{fold: fold}
	for _, p := range patterns {
		g.all = g.all || strings.Trim(p, "*") == "" && p != ""
		if fold {
			p = strings.ToLower(p)
		}
		g.patterns = append(g.patterns, p)
	}
	return g
}

// Match reports whether one of the patterns matches all of name.
func (g *Globs) Match(name string) bool {
	return g.all || slices.ContainsFunc(g.patterns, func(p string) bool { return g.matches(p, name) })
}

// matches goes back only to the last star, so that a pattern takes at most len(p)*len(s) steps.
func (g *Globs) matches(p, s string) bool {
	i, j, star, retry := 0, 0, -1, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, retry = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j] || g.fold && p[i] == lower(s[j])):
			i++
			j++
		case star >= 0:
			retry++
			i, j = star+1, retry
		default:
			return false
		}
	}
	return strings.Trim(p[i:], "*") == ""
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}
