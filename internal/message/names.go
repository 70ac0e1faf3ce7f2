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

// Bookkeeping reports whether a header of this name is what a broker or a sidecar records about a delivery. Neither
// case nor '_', '.' and ' ' in the place of '-' make another name of it: a publisher's x_retry_count must not pass for
// x-retry-count.
func Bookkeeping[T string | []byte](name T) bool {
	if len(name) < 2 || name[0]|0x20 != 'x' || mapped(name[1]) != '-' {
		return false
	}
	return begins(name, HeaderDeath) || begins(name, "x-first-death") || begins(name, "x-last-death") ||
		begins(name, "x-final-") || begins(name, "x-redriven-") || begins(name, "x-retry-") ||
		is(name, HeaderDeliveryCount) || is(name, HeaderAcquiredCount) ||
		begins(name, "x-original-") && slices.ContainsFunc(originals, func(s string) bool { return is(name, s) })
}

// originals are what a sidecar writes into a message that it publishes again. Other names that begin with x-original-
// are the publisher's.
var originals = strings.Fields(HeaderOriginalQueue + " " + HeaderOriginalExchange + " " + HeaderOriginalRoutingKey +
	" x-original-user-id x-original-expiration x-original-reply-to x-original-cc x-original-bcc")

// Reserved reports whether an app must not publish a header of this name: it is Bookkeeping, or CC or BCC, which would
// send copies past the list of where it may publish.
func Reserved(name string) bool { return Bookkeeping(name) || is(name, "cc") || is(name, "bcc") }

func is[T string | []byte](name T, s string) bool { return len(name) == len(s) && begins(name, s) }

func begins[T string | []byte](name T, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if mapped(name[i]) != prefix[i] {
			return false
		}
	}
	return true
}

// mapped returns a byte of a name as the app sees it: in lower case, with '-' for a byte that HTTP names cannot have.
func mapped(c byte) byte {
	switch c {
	case '_', '.', ' ':
		return '-'
	}
	return lower(c)
}
