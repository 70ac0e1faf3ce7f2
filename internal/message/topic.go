package message

import (
	"slices"
	"strings"
)

// Topic is a pattern as topic exchanges have them, split at its dots: "*" is one word, "#" any number of words.
type Topic []string

// NewTopic splits a pattern. As for a broker, an empty one has no word.
func NewTopic(pattern string) Topic {
	if pattern == "" {
		return nil
	}
	return strings.Split(pattern, ".")
}

// Match reports whether the pattern matches key.
func (t Topic) Match(key string) bool { return t.match(key, ".") }

// Covers reports whether t matches every key that the pattern other matches. Of two patterns with several wildcards it
// may return false although it does.
func (t Topic) Covers(other string) bool { return t.match(other, "#") }

// match matches the words of key; "*" does not stand for except. After a mismatch only the last "#" takes one word
// more: a key costs no more than its words times those of the pattern.
func (t Topic) match(key, except string) bool {
	p, at, hash, taken := 0, 0, -1, 0 // at and taken are where a word of the key begins
	for at <= len(key) && key != "" {
		word, _, _ := strings.Cut(key[at:], ".")
		switch {
		case p < len(t) && t[p] == "#":
			hash, taken = p, at
			p++
		case p < len(t) && (t[p] == "*" && word != except || t[p] == word):
			p++
			at += len(word) + 1
		case hash >= 0:
			word, _, _ = strings.Cut(key[taken:], ".")
			taken += len(word) + 1
			p, at = hash+1, taken
		default:
			return false
		}
	}
	for p < len(t) && t[p] == "#" {
		p++
	}
	return p == len(t)
}

// Overlaps reports whether a key may exist that both patterns match. For patterns with many "#" it returns true without
// a search, which would take time exponential in their number.
func (t Topic) Overlaps(other Topic) bool {
	return strings.Count(strings.Join(append(slices.Clone(t), other...), "."), "#") > 6 || t.overlaps(other)
}

func (t Topic) overlaps(other Topic) bool {
	switch {
	case len(other) > 0 && other[0] == "#" && (len(t) == 0 || t[0] != "#"):
		return other.overlaps(t)
	case len(t) == 0 || len(other) == 0 && t[0] != "#":
		return len(t) == len(other)
	case t[0] == "#":
		return t[1:].overlaps(other) || len(other) > 0 && t.overlaps(other[1:])
	}
	return (t[0] == "*" || other[0] == "*" || t[0] == other[0]) && t[1:].overlaps(other[1:])
}
