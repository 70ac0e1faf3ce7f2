package test

import (
	"strings"
	"testing"
	"time"
)

// TestDLQRedriveWhileOneIsKilled: the command as it begins, the command and the sidecar while messages move; the command is
// run again each time. No message is lost, and each is repeated at most once for each kill.
func TestDLQRedriveWhileOneIsKilled(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1", "CONCURRENCY", "30", "LOG_LEVEL", "info")
	sc.app.otherwise(func(d *delivery) answer {
		if strings.HasPrefix(d.ID, "bad") {
			return status(500)
		}
		return status(200)
	})
	run := sc.run()
	good, bad := numbered("ok", 360), numbered("bad", 40)
	for i, id := range bad {
		sc.parkIDs(503, append(good[9*i:9*i+9:9*i+9], id)...)
	}
	again := func() *sidecar { return launch(t, sc.env, "dlq", "redrive", "--all", "-q", "--rate", "200/s") }
	kills := 0
	for i := range 3 { // while it connects, locks, takes the first
		cmd := again()
		time.Sleep(time.Duration(30*(i+1)) * time.Millisecond)
		cmd.kill()
		kills++
	}
	for i := range 3 {
		cmd := again()
		eventually(t, "more messages on their way", func() bool {
			return cmd.ended() || sc.app.total()+max(sc.ready(sc.queue()), 0) >= 80*(i+1)
		})
		kills++
		if i == 1 {
			run.kill()
			run = sc.run()
		}
		cmd.kill()
	}
	eventually(t, "the command exits with 0", func() bool { return again().exitCode() == 0 })
	sc.app.awaitAll(append(good, bad...)...)
	eventually(t, "all are tried and parked", func() bool { return sc.ready(sc.queue()) == 0 && sc.ready(sc.dlq()) >= len(bad) })
	run.stop()
	copies := map[string]int{}
	for _, d := range sc.take(sc.queue(), sc.ready(sc.queue())) { // what the stop gave back
		copies[d.MessageId]++
	}
	for _, d := range sc.take(sc.dlq(), sc.ready(sc.dlq())) {
		copies[d.MessageId]++
		if asInt(d.Headers["x-redriven-count"]) < 1 || asInt(d.Headers["x-final-status-code"]) != 500 {
			t.Errorf("%s is parked with %v", d.MessageId, d.Headers)
		}
	}
	for _, id := range good {
		if n := len(sc.app.Seen(id)); n < 1 || n+copies[id] > kills+1 {
			t.Errorf("%s came %d times in %d kills, and is left %d times", id, n, kills, copies[id])
		}
	}
	for _, id := range bad {
		if n := copies[id]; n < 1 || n > kills+1 {
			t.Errorf("%s is parked %d times after %d kills", id, n, kills)
		}
	}
}
