package test

import "testing"

// TestParkWhoseConfirmIsLost: the copy is in the DLQ and the sidecar was not notified. It cannot know, so the original stays
// and is parked again: twice, never not at all.
func TestParkWhoseConfirmIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    func(sc *scene, s *sidecar, p *proxy) *sidecar
		attempts int
	}{
		"cut":    {func(_ *scene, s *sidecar, p *proxy) *sidecar { p.cut(); return s }, 1},
		"killed": {func(sc *scene, s *sidecar, _ *proxy) *sidecar { s.kill(); return start(sc.t, sc.env) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "0").seed()
			p := linked(t, sc)
			gate := make(chan struct{})
			sc.app.on("m", answer{status: 500, gate: gate}, status(500))
			sc.app.on("first", status(500))
			s := sc.run()
			sc.send("first")
			sc.take(sc.dlq(), 1) // now there is a channel to publish on: opening one would wait for an answer
			s.awaitOutcome("first", "park")
			sc.send("m")
			sc.app.await("m", 1)
			thaw := p.mute()
			t.Cleanup(thaw)
			close(gate)
			eventually(t, "the copy in the DLQ", func() bool { return sc.ready(sc.dlq()) == 1 })
			s = c.fault(sc, s, p)
			thaw()
			list := sc.take(sc.dlq(), 2)
			for _, d := range list {
				if d.MessageId != "m" || string(d.Body) != string(list[0].Body) || d.Headers["x-final-reason"] != "max_retries" || asInt(d.Headers["x-final-status-code"]) != 500 {
					t.Errorf("parked %q: %v", d.MessageId, d.Headers)
				}
			}
			sc.settledAll(s.awaitReady(), 0)
			if n := len(sc.app.seen("m")); n != c.attempts {
				t.Errorf("%d receipts, want %d", n, c.attempts)
			}
		})
	}
}
