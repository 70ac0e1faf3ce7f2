package app

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"sidecar/internal/apptest"
	"sidecar/internal/telemetry"
)

// TestStopOfAPartThatHangs: the log names every part that has stopped, so the one that is missing is the one that hangs.
func TestStopOfAPartThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log apptest.Log
		var group errgroup.Group
		release := make(chan struct{})
		untilEnd := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		stop, _ := start(&group, []part{
			{name: "quick", run: untilEnd, stop: func(stopTime) { time.Sleep(time.Second) }},
			{name: "stop hangs", run: func(context.Context) error { return nil }, stop: func(stopTime) { <-release }},
			{name: "run hangs", run: func(context.Context) error { <-release; return nil }},
		}, telemetry.NewLogger(&log, "debug", "json"))
		go stop(stopTime{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := log.String(); !strings.Contains(got, `"part stopped","part":"quick","duration_ms":1000`) || strings.Contains(got, "hangs") {
			t.Errorf("the log while two parts hang:\n%s", got)
		}
		close(release)
		synctest.Wait()
		for _, name := range []string{"stop hangs", "run hangs"} {
			if !strings.Contains(log.String(), `"part":"`+name+`","duration_ms":60000`) {
				t.Errorf("the log after the end does not have %q:\n%s", name, log.String())
			}
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}
