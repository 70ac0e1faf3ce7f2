package app

import (
	"context"
	"runtime/debug"
	"time"
)

// restInterval is how long nothing must have been received for memory to go back to the system.
const restInterval = 5 * time.Second

// rest returns the memory of a burst once it is over: a sidecar is paid for in every pod, and most are idle mostly.
func (a *App) rest(ctx context.Context) error {
	t := time.NewTicker(restInterval)
	defer t.Stop()
	seen, busy := a.consumer.Received(), true // the start is a burst too
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		if now := a.consumer.Received(); now != seen {
			seen, busy = now, true
			continue
		}
		if busy {
			debug.FreeOSMemory()
			debug.FreeOSMemory() // what a pool holds survives one collection
			busy = false
		}
	}
}
