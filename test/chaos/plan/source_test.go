package plan

import "testing"

// TestIDs: what an id says is what went into it, and nothing else is taken for one of a run.
func TestIDs(t *testing.T) {
	t.Parallel()
	for s := range Sources {
		for _, n := range []int{0, 1, 99_999_999} {
			seq := s.Seq(n)
			if got := SeqOf(ID("cafe0123", seq)); got != seq {
				t.Errorf("%s %d: id %s is read as %d, want %d", s, n, ID("cafe0123", seq), got, seq)
			}
			if source, m := SourceOf(seq); source != s || m != n {
				t.Errorf("%s %d: read as %s %d", s, n, source, m)
			}
		}
	}
	for _, id := range []string{"", "x", "cafe-", "cafe-1.5", "cafe--0x1", "00000000-0000-4000-8000-zzzzzzzzzzzz", "00000000-0000-4000-8000-ffffffffffff", "cafe-200000000"} {
		if got := SeqOf(id); got != -1 {
			t.Errorf("%q is read as message %d", id, got)
		}
	}
}
