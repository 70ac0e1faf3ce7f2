package app

import (
	"context"
	"runtime/debug"
	"time"
)

// quietInterval is how long no message must arrive before memory is returned to the system.
const quietInterval = 5 * time.Second

// freeMemory returns memory to the system after a burst: most sidecars are idle most of the time.
func (a *App) freeMemory(ctx context.Context) error {
	t := time.NewTicker(quietInterval)
	defer t.Stop()
	seen, busy := received(a.subscriptions), true // the start is a burst, too
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		if now := received(a.subscriptions); now != seen {
			seen, busy = now, true
			continue
		}
		if busy {
			debug.FreeOSMemory()
			debug.FreeOSMemory() // the content of a sync.Pool survives one collection
			busy = false
		}
	}
}
