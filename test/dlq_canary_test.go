package test

import (
	"strings"
	"testing"
)

// TestDLQCanaryOfMany: as many verdicts come as messages are sent ahead, also when the service takes them all at once.
func TestDLQCanaryOfMany(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "100")
	s := sc.run()
	sc.warm(s, 50)
	ids := numbered("m", 600)
	sc.parkMany(503, ids...)
	if r := sc.cli(0, "redrive", "--canary", "500", "--canary-timeout", "30s"); !strings.Contains(r.stdout, "600 of 600 messages redriven; canary: 500 sent, 500 good, 0 bad") {
		t.Errorf("%s", r.all())
	}
	sc.app.awaitAll(ids...)
	sc.settledAll(s, 0)
}
