package dispatch

import "strings"

// globs matches names without regard to ASCII case; '*' stands for any bytes, '?' for one.
type globs struct {
	all      bool
	patterns []string
}

func newGlobs(patterns []string) globs {
	var g globs
	for _, p := range patterns {
		g.all = g.all || strings.Trim(p, "*") == "" && p != ""
		g.patterns = append(g.patterns, strings.ToLower(p))
	}
	return g
}

func (g *globs) match(name string) bool {
	if g.all {
		return true
	}
	for _, p := range g.patterns {
		if matchGlob(p, name) {
			return true
		}
	}
	return false
}

// matchGlob goes back only to the last star, so that no pattern takes more than len(p)*len(s) steps.
func matchGlob(p, s string) bool {
	i, j := 0, 0
	star, retry := -1, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, retry = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == lower(s[j])):
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
