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

// Overlaps reports whether a key exists that both patterns match.
func (t Topic) Overlaps(other Topic) bool {
	next, meet := make([]bool, len(other)+1), make([]bool, len(other)+1) // t[i+1:] and t[i:], each with other[j:]
	for i := len(t); i >= 0; i-- {
		for j := len(other); j >= 0; j-- {
			switch {
			case i == len(t) && j == len(other):
				meet[j] = true
			case i < len(t) && t[i] == "#":
				meet[j] = next[j] || j < len(other) && meet[j+1]
			case j < len(other) && other[j] == "#":
				meet[j] = meet[j+1] || next[j] // of next nothing is set at the end of t
			default:
				meet[j] = i < len(t) && j < len(other) && wordsMeet(t[i], other[j]) && next[j+1]
			}
		}
		meet, next = next, meet
	}
	return next[0]
}

func wordsMeet(a, b string) bool { return a == "*" || b == "*" || a == b }
