package message

import "testing"

func TestReservedNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ bookkeeping, reserved bool }{
		"x-death": {true, true}, "X-Death": {true, true}, "x_death": {true, true}, "x-death-more": {true, true}, "x-first-death-queue": {true, true},
		"x.last death.reason": {true, true}, "x-final-reason": {true, true}, "x-redriven-at": {true, true}, "x_retry_count": {true, true},
		"x-delivery-count": {true, true}, "x-original-queue": {true, true}, "X_Original.Exchange": {true, true}, "x-original-routing-key": {true, true},
		"x-original-filename": {}, "x-original-routing-keys": {}, "x-original-user-id": {true, true}, "X_Original_CC": {true, true}, "x-original-url": {}, "X-Acquired-Count": {true, true}, "CC": {false, true}, "bcc": {false, true},
		"": {}, "x": {}, "x-": {}, "c": {}, "x-delivery-counts": {}, "x-deat": {}, "xx-death": {}, "x-tenant": {}, "ccc": {}, "y-death": {},
	} {
		if Bookkeeping(name) != want.bookkeeping || Bookkeeping([]byte(name)) != want.bookkeeping || Reserved(name) != want.reserved {
			t.Errorf("%q: %v %v", name, Bookkeeping(name), Reserved(name))
		}
	}
}

func TestGlobs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, name string
		exact, folded bool
	}{
		{"*", "", true, true}, {"**", "anything", true, true}, {"", "", true, true}, {"", "a", false, false}, {"a.*", "a.b", true, true}, {"a.*", "A.b", false, true},
		{"A?", "ab", false, true}, {"A?", "Ab", true, true}, {"?", "", false, false}, {"*a*b", "xaybaab", true, true}, {"*a*b", "xayba", false, false}, {"a*", "a", true, true},
	} {
		for fold, want := range map[bool]bool{false: tc.exact, true: tc.folded} {
			g := NewGlobs([]string{"never", tc.pattern}, fold)
			if got := g.Match(tc.name); got != want {
				t.Errorf("%q matches %q, fold %v: %v", tc.pattern, tc.name, fold, got)
			}
		}
	}
	if g := NewGlobs(nil, true); g.Match("") {
		t.Error("no pattern matches something")
	}
}
