package test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ownBroker is a RabbitMQ of this test alone, because it is going to be killed.
type ownBroker struct {
	t         testing.TB
	dir       string
	url, port string
}

func newOwnBroker(t testing.TB) *ownBroker {
	t.Helper()
	b := &ownBroker{t: t, dir: filepath.Join(t.TempDir(), "broker"), port: "0"}
	t.Cleanup(func() { b.script("rm", b.dir) })
	b.start()
	return b
}

func (b *ownBroker) script(args ...string) string {
	b.t.Helper()
	out, err := exec.Command("../scripts/broker.sh", args...).Output()
	if err != nil {
		b.t.Fatalf("broker.sh %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (b *ownBroker) start() {
	b.t.Helper()
	found := regexp.MustCompile(`AMQP_URL=(\S+:(\d+)/)`).FindStringSubmatch(b.script("start", b.dir, b.port))
	if found == nil {
		b.t.Fatal("broker.sh start does not tell the URL")
	}
	b.url, b.port = found[1], found[2]
}

func (b *ownBroker) kill() { b.t.Helper(); b.script("kill", b.dir) }

// dial waits for the broker.
func (b *ownBroker) dial() *broker {
	b.t.Helper()
	var conn *amqp.Connection
	eventually(b.t, "a connection to the broker", func() (ok bool) {
		c, err := amqp.Dial(b.url)
		conn = c
		return err == nil
	})
	b.t.Cleanup(func() { _ = conn.Close() })
	return &broker{t: b.t, conn: conn}
}

// TestBrokerKilledWhileMessagesWaitForTheirRetry: kill -9 of a broker with quorum queues, with messages in the service
// queue, in hand and in retry transit. Every confirmed one is answered 200 in the end.
func TestBrokerKilledWhileMessagesWaitForTheirRetry(t *testing.T) {
	t.Parallel()
	own := newOwnBroker(t)
	sc := newScene(t).with("QUEUE_TYPE", "quorum", "AMQP_URL", own.url)
	sc.broker = own.dial()
	sc.app.otherwise(func(d *delivery) answer {
		if d.nth <= 2 {
			return status(409) // no reason for the breaker to pause
		}
		time.Sleep(time.Millisecond)
		return status(200)
	})
	s := sc.run()
	// RabbitMQ 3.10 writes the directory of its quorum queues up to three seconds late: one killed earlier comes back
	// with an empty log and without a leader, whoever declared it.
	time.Sleep(6 * time.Second)
	ids := numbered("m", 1000)
	for i := 0; i < len(ids); i += 500 {
		sc.send(ids[i : i+500]...)
	}
	eventually(t, "messages in retry transit", func() bool { return sc.ready(sc.retryQueue()) > 50 })
	own.kill()
	eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
	own.start()
	sc.broker = own.dial()
	s.awaitReady()
	within(t, 2*patience, "everything acked", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return len(sc.app.seen(id)) < 3 })
	})
	for _, id := range ids {
		eventually(t, id+" acked", func() bool { return slices.Contains(s.log.outcomes(id), "ack") })
	}
	eventually(t, "empty queues", func() bool { return sc.ready(sc.queue()) == 0 && sc.ready(sc.retryQueue()) == 0 })
	sc.settledAll(s, 0)
}
