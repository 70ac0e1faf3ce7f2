package publish

import "strings"

// patterns is a list of routing keys that are allowed; '*' stands for any bytes, '?' for one. Letters count as they are.
type patterns struct {
	all  bool
	list []string
}

func newPatterns(list []string) patterns {
	p := patterns{list: list}
	for _, one := range list {
		p.all = p.all || one != "" && strings.Trim(one, "*") == ""
	}
	return p
}

func (p *patterns) match(key string) bool {
	if p.all {
		return true
	}
	for _, one := range p.list {
		if matches(one, key) {
			return true
		}
	}
	return false
}

// matches goes back only to the last star, so that no pattern takes more than len(p)*len(s) steps.
func matches(p, s string) bool {
	i, j, star, retry := 0, 0, -1, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, retry = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j]):
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
