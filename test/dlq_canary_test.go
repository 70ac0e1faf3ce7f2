package test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// failedAgain is the error about whichever of three messages was reported first: they are reported side by side.
var failedAgain = regexp.MustCompile(`"m-[012]" failed again: park \(max_retries, status 409\); the rest stays parked`)

// TestDLQCanary: three go ahead, by the retry queue of the preset per-queue, and fail again; the rest is not touched, also
// not its order. Once the app has been repaired all of it goes, as many verdicts as the service gives at once.
func TestDLQCanary(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	p := presets(sc.prefix)[3]
	sc.with("TOPOLOGY", p.name, "MAX_RETRIES", "1", "CONCURRENCY", "100").with(p.env...)
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	s := sc.run()
	ids := numbered("m", 200)
	for _, id := range ids {
		sc.publish("", p.dlq, parked(id, 503))
	}
	r := sc.cli(1, "redrive", "--all", "--canary", "3", "--json")
	if !failedAgain.MatchString(r.stderr) || !strings.Contains(r.stdout, "canary failed") {
		t.Errorf("%s", r.all())
	}
	if d := documents[done](t, r)[0]; d.Done != 3 || d.Matched != 3 || d.Canary.Sent != 3 || d.Canary.Bad != 1 {
		t.Errorf("%+v", d)
	}
	eventually(t, "the three parked again", func() bool { return sc.ready(p.dlq) == len(ids) })
	got := sc.listedIDs()
	slices.Sort(got[len(got)-3:]) // they were parked beside each other
	if !slices.Equal(got, append(slices.Clone(ids[3:]), ids[:3]...)) || sc.app.total() != 3 {
		t.Errorf("%d were tried; parked: %q", sc.app.total(), got)
	}

	sc.app.otherwise(func(*delivery) answer { return status(200) })
	r = sc.cli(0, "redrive", "--all", "--canary", "150", "--canary-timeout", "30s")
	if !strings.Contains(r.stdout, "200 of 200 messages redriven; canary: 150 sent, 150 good, 0 bad") {
		t.Errorf("%s", r.all())
	}
	sc.app.awaitAll(ids...)
	s.stop()
	if n := sc.ready(p.dlq) + sc.ready(p.queue); n != 0 {
		t.Errorf("%d messages left", n)
	}
}
