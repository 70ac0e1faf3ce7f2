package app

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemoryIsFreedEveryQuietMinute: probes and scrapes need memory too, long after the last message. A collection that
// begins by itself takes the place of a forced one, so there must be none.
func TestMemoryIsFreedEveryQuietMinute(t *testing.T) { //nolint:paralleltest // counts the collections of the process
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	synctest.Test(t, func(t *testing.T) {
		before := forced()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- (&App{}).freeMemory(ctx) }()
		for range 3 {
			time.Sleep(quietInterval)
			synctest.Wait()
			after := forced()
			if after < before+2 {
				t.Errorf("%d collections after a quiet interval, want 2", after-before)
			}
			before = after
			time.Sleep(time.Minute - quietInterval)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
