package budget

// Shares divides an account into n equal parts, of which none takes what another one may still need: the single thing
// that one may hold beyond its share is of memory beyond all of them. Neither do waiters of other accounts keep a share
// from its memory. Nothing may call Wait on a share, or take memory of the whole account.
func (a *Account) Shares(n int) []*Account {
	all := make([]*Account, n)
	for i := range all {
		all[i] = &Account{b: a.b, whole: a, parts: all, share: a.share / int64(n)}
	}
	return all
}

// Share is what the account may hold in bytes, unless a single thing is larger.
func (a *Account) Share() int64 { return a.share }

// mayHold reports whether the account may hold n bytes more. Beyond its share it may hold a single thing: an account
// that holds nothing else whatever there is, and a share what the others cannot need for theirs.
func (a *Account) mayHold(n int64) bool {
	switch {
	case a.held+n <= a.share:
		return true
	case a.parts == nil:
		return a.held == 0
	case a.held > a.share:
		return false
	}
	reserved := int64(0)
	for _, other := range a.parts {
		if other != a {
			reserved += max(0, other.share-other.held)
		}
	}
	return a.b.used+reserved+n <= a.b.limit
}
