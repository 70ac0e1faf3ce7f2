package app

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
)

// quietInterval is how long no message must arrive before memory is returned to the system.
const quietInterval = 5 * time.Second

// startPercent is the runtime's GC percent while several subscriptions start: the less garbage there is between what
// they keep, the fewer half-used pages stay. With 50 subscriptions that is a twelfth of the memory at rest.
const startPercent = 20

// freeMemory returns memory to the system after a burst: most sidecars are idle most of the time. What is quiet does it
// again every minute: probes and scrapes alone would fill four megabytes before the runtime collects them.
func (a *App) freeMemory(ctx context.Context) error {
	restore := func() {}
	if len(a.subscriptions) > 1 {
		before := debug.SetGCPercent(startPercent)
		restore = sync.OnceFunc(func() { debug.SetGCPercent(before) })
	}
	defer func() { restore() }()
	t := time.NewTicker(quietInterval)
	defer t.Stop()
	seen := received(a.subscriptions)
	for quiet := 0; ; quiet++ { // the start is a burst, too
		select {
		case <-t.C:
			restore()
		case <-ctx.Done():
			return nil
		}
		if now := received(a.subscriptions); now != seen {
			seen, quiet = now, -1
		} else if quiet%int(time.Minute/quietInterval) == 0 {
			debug.FreeOSMemory()
			debug.FreeOSMemory() // the content of a sync.Pool survives one collection
		}
	}
}
