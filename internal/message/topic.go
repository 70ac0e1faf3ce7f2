package message

import "strings"

// Topic is a pattern as topic exchanges have them, split at its dots: "*" is one word, "#" any number of words.
type Topic []string

// NewTopic splits a pattern. As for a broker, an empty one has no word.
func NewTopic(pattern string) Topic {
	if pattern == "" {
		return nil
	}
	return strings.Split(pattern, ".")
}

// Match reports whether the pattern matches key. After a mismatch only the last "#" takes one word more: a key costs no
// more than its words times those of the pattern.
func (t Topic) Match(key string) bool {
	p, at, hash, taken := 0, 0, -1, 0 // at and taken are where a word of the key begins
	for at <= len(key) && key != "" {
		word, _, _ := strings.Cut(key[at:], ".")
		switch {
		case p < len(t) && t[p] == "#":
			hash, taken = p, at
			p++
		case p < len(t) && (t[p] == "*" || t[p] == word):
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

// Covers reports whether t matches every key that the pattern other matches. Of two patterns with several wildcards it
// may return false although it does.
func (t Topic) Covers(other Topic) bool {
	covered := make([]bool, len(other)+1) // [i]: t up to here covers the first i words of other
	covered[0] = true
	for _, word := range t {
		next := make([]bool, len(covered))
		for i := range next {
			switch {
			case word == "#":
				next[i] = covered[i] || i > 0 && next[i-1]
			case i > 0:
				next[i] = covered[i-1] && other[i-1] != "#" && (word == "*" || word == other[i-1])
			}
		}
		covered = next
	}
	return covered[len(other)]
}
