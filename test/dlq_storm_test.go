package test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// storm is a redrive of everything that is killed at, again and again, and each time simply begun anew.
type storm struct {
	*scene
	n     int              // messages; every tenth fails for ever
	node  *brokertest.Node // nil: the broker is not killed
	run   *sidecar         // that consumes
	cli   *sidecar         // that redrives; nil before the first
	rate  string
	done  bool // the command has exited with 0
	kills map[string]int
	busy  int // kills while the command was at work

	failed int // commands that ended by themselves with 1 after they had connected
}

// newStorm parks n messages and starts the sidecar.
func newStorm(t *testing.T, node *brokertest.Node, n int, rate, queueType string) *storm {
	t.Helper()
	st := &storm{scene: newScene(t), n: n, node: node, rate: rate, kills: map[string]int{}}
	st.with("QUEUE_TYPE", queueType, "MAX_RETRIES", "1", "CONCURRENCY", "30", "LOG_LEVEL", "info")
	st.app.otherwise(func(d *delivery) answer {
		if strings.HasPrefix(d.id, "bad") {
			return status(500)
		}
		return status(200)
	})
	st.run = st.scene.run()
	if node != nil {
		quorumOnDisk(t)
	}
	st.parkIDs(503, st.ids()...)
	return st
}

func (st *storm) ids() []string {
	ids := numbered("ok", st.n)
	for i := range ids {
		if i%10 == 9 {
			ids[i] = "bad-" + strconv.Itoa(i)
		}
	}
	return ids
}

// moved is how many messages have left the dead-letter queue at least.
func (st *storm) moved() int { return st.app.Messages() + max(st.ready(st.queue()), 0) }

// going has the command run until it has exited with 0 once.
func (st *storm) going() {
	if st.cli != nil && !st.cli.ended() || st.done {
		return
	}
	if st.cli != nil {
		switch code := st.cli.exitCode(); code {
		case 0:
			st.done = true
			return
		case 1:
			if !strings.Contains(st.cli.log.String(), "connect to ") {
				st.failed++
			}
		case -1: // we killed it
		default:
			st.t.Errorf("exit %d: %s", code, st.cli.log.String())
		}
	}
	st.cli = launch(st.t, st.env, "dlq", "redrive", "--all", "-q", "--rate", st.rate)
}

// reach waits until so many messages have been moved.
func (st *storm) reach(moved int) {
	st.t.Helper()
	brokertest.Eventually(st.t, 2*patience, strconv.Itoa(moved)+" messages on their way", func() bool {
		st.going()
		return st.done || st.moved() >= moved
	})
}

// kill is kill -9 of one of them; the sidecar and the broker are started again.
func (st *storm) kill(victim string) {
	st.t.Helper()
	st.kills[victim]++
	if st.cli != nil && !st.cli.ended() {
		st.busy++
	}
	switch victim {
	case "command":
		st.cli.kill()
	case "sidecar":
		st.run.kill()
		st.run = st.scene.run()
	case "broker":
		st.node.Kill()
		st.meanwhile(st.node.Start)
		st.run.awaitReady()
	}
}

// meanwhile has the command begun again and again while the broker starts: a quorum queue whose leader is not back yet
// says that it holds nothing, which the command must not take for the end of its work.
func (st *storm) meanwhile(start func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				st.going()
			}
		}
	}()
	start()
	close(stop)
	<-ended
}

// judge lets it come to its end: nothing is lost, and each copy too many is a kill's, or a command's that a broker which
// was starting cut off: each of these begins with the same oldest messages.
func (st *storm) judge() {
	t := st.t
	t.Helper()
	brokertest.Eventually(t, 2*patience, "the command exits with 0", func() bool { st.going(); return st.done })
	// Queues whose leaders are not back say that they hold nothing.
	for end := time.Now().Add(2 * patience); time.Now().Before(end) && (st.ready(st.queue()) != 0 || st.ready(st.retryQueue()) != 0 ||
		st.ready(st.dlq()) < st.n/10 || st.app.Messages() < st.n); time.Sleep(50 * time.Millisecond) {
	}
	st.run.stop()
	for _, q := range []string{st.queue(), st.retryQueue()} {
		if n := st.ready(q); n > 0 {
			t.Errorf("%d messages left in %s", n, q)
		}
	}
	copies := map[string]int{}
	for _, d := range st.take(st.dlq(), st.ready(st.dlq())) {
		copies[d.MessageId]++
		if asInt(d.Headers["x-redriven-count"]) < 1 || asInt(d.Headers["x-final-status-code"]) != 500 {
			t.Errorf("%s is parked with %v", d.MessageId, d.Headers)
		}
	}
	lost, twice, kills := 0, 0, st.failed
	for _, n := range st.kills {
		kills += n
	}
	for _, id := range st.ids() {
		n := copies[id]
		if strings.HasPrefix(id, "ok") {
			n = len(st.app.seen(id))
			if copies[id] > 0 {
				t.Errorf("%s is parked, and the command has exited with 0 since", id)
			}
		}
		if n == 0 {
			lost++
			t.Errorf("%s is lost", id)
		}
		if n > kills+1 {
			t.Errorf("%s came %d times in %d kills and failed commands", id, n, kills)
		}
		twice += max(0, n-1)
	}
	t.Logf("%d messages, killed: %v, %d of them while the command was at work, %d commands failed: %d lost, %d came more than once",
		st.n, st.kills, st.busy, st.failed, lost, twice)
	if st.busy < (kills-st.failed)/2 {
		t.Errorf("only %d of %d kills hit a redrive", st.busy, kills-st.failed)
	}
}

// TestDLQRedriveInAStorm: the broker is killed, too.
func TestDLQRedriveInAStorm(t *testing.T) {
	t.Parallel()
	const n = 1500
	st := newStorm(t, brokertest.OwnNode(t), n, "700/s", "quorum")
	for i, victim := range []string{"command", "broker", "sidecar", "broker"} {
		st.reach(n * (i + 1) / 6)
		st.kill(victim)
	}
	st.judge()
}

// TestDLQRedriveWhileOneIsKilled: the command as soon as it runs, then the command and the sidecar in turn.
func TestDLQRedriveWhileOneIsKilled(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			const n = 800
			st := newStorm(t, nil, n, "400/s", queueType)
			for i := range 6 { // while it connects, locks, takes the first
				st.going()
				time.Sleep(time.Duration(15*(i+1)) * time.Millisecond)
				st.kill("command")
			}
			for i := range 8 {
				st.reach(n * (i + 1) / 10)
				st.kill([]string{"command", "sidecar"}[i%2])
			}
			st.judge()
		})
	}
}
