package app

import (
	"context"
	"runtime/debug"
	"time"
)

// quietInterval is how long no message must arrive before memory is returned to the system.
const quietInterval = 5 * time.Second

// freeMemory returns memory to the system after a burst: most sidecars are idle most of the time. What is quiet does it
// again every minute: probes and scrapes alone would fill four megabytes before the runtime collects them.
func (a *App) freeMemory(ctx context.Context) error {
	t := time.NewTicker(quietInterval)
	defer t.Stop()
	seen := received(a.subscriptions)
	for quiet := 0; ; quiet++ { // the start is a burst, too
		select {
		case <-t.C:
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
