package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	// serviceLink is what Kubernetes injects for a Service called "sidecar" or "sidecar-…".
	serviceLink = regexp.MustCompile(`^SIDECAR_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_.*)$`)
	linkedPort  = regexp.MustCompile(`_SERVICE_PORT(_.*)?$|_PORT_\d+_(TCP|UDP|SCTP)_PORT$`)
)

// checkUnknown refuses unknown names with our prefix: a mistyped name would otherwise be a setting without effect. The
// value is not shown, because the mistyped name may be that of a secret.
func (l *loader) checkUnknown() {
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		meanings := 0
		for _, known := range l.order {
			if known == name {
				meanings++
			}
		}
		consequence := strings.HasPrefix(name, ownPrefix) && !l.ok(subscriptions)
		if !strings.HasPrefix(name, prefix) || meanings == 1 || consequence {
			continue
		}
		switch link := serviceLink.MatchString(name); {
		case link && injected(name, l.env[name]):
		case link:
			l.warnings = append(l.warnings, shownName(name)+": ignored, because Kubernetes injects such names for a Service; "+
				l.suggestion(name))
		default:
			l.problems = slices.DeleteFunc(l.problems, func(p Problem) bool { return meanings > 1 && p.Variable == name })
			l.problems = append(l.problems, Problem{Variable: shownName(name), Reason: l.unknown(name)})
		}
	}
}

// injected reports whether the value has the form of those that Kubernetes injects.
func injected(name, value string) bool {
	switch {
	case strings.HasSuffix(name, "_SERVICE_HOST"), strings.HasSuffix(name, "_ADDR"):
		return validHost(value)
	case linkedPort.MatchString(name):
		return checkPort(value) == nil
	case strings.HasSuffix(name, "_PROTO"):
		return value == "tcp" || value == "udp" || value == "sctp"
	}
	return strings.Contains(value, "://")
}

// shownName keeps a name with strange characters on one line.
func shownName(name string) string {
	if q := shown(name); q != `"`+name+`"` {
		return q
	}
	return name
}

// suggestion names the nearest known name.
func (l *loader) suggestion(name string) string {
	var known []string
	for _, k := range l.order {
		if short, ours := strings.CutPrefix(k, prefix); ours {
			known = append(known, short)
		}
	}
	if nearest := Nearest(strings.ToUpper(name[len(prefix):]), known); nearest != "" {
		return "the nearest known name is " + prefix + nearest
	}
	return "docs/configuration.md lists the known names"
}

// Nearest returns the known name of which the smallest share has to be edited to get name, "" if that is more than half
// of each. No known name is longer than 64 bytes, and a longer name, which may come from outside, is near none.
func Nearest(name string, known []string) (nearest string) {
	if len(name) > 64 {
		return ""
	}
	least := 0.5
	for _, k := range known {
		share := float64(distance(name, k)) / float64(max(len(name), len(k), 1))
		if share < least || share == least && nearest == "" {
			least, nearest = share, k
		}
	}
	return nearest
}

// distance counts the insertions, deletions, substitutions and swaps of neighbours between a and b.
func distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
