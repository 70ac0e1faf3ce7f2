package httpguard

import (
	"strings"
	"testing"
)

// TestDepthOfJSON: no deeper than sixteen, whatever would be made of it.
func TestDepthOfJSON(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte { return []byte(`{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + "}") }
	if err := inspect(nested(maxDepth)); err != nil {
		t.Error(err)
	}
	for _, b := range [][]byte{nested(maxDepth + 1), []byte(strings.Repeat(`{"a":`, 100_000))} {
		if err := inspect(b); err == nil || !strings.Contains(err.Error(), "nested more than 16 deep") {
			t.Errorf("%.30s: %v", b, err)
		}
	}
}
