package test

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// waitingScene has n messages that failed once and that the queue delays for longer than any test takes. edit changes
// each before it is sent.
func waitingScene(t *testing.T, n int, edit func(*amqp.Publishing)) (*scene, *sidecar) {
	t.Helper()
	sc := nativeScene(t).with("RETRY_DELAY", "10m")
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	s := sc.run()
	for _, m := range messages(numbered("m", n)...) {
		if edit != nil {
			edit(&m)
		}
		sc.sendMessage(m)
	}
	eventually(t, "all wait", func() bool { return sc.held() == n && s.metric("sidecar_waiting_messages") == float64(n) })
	return sc, s
}

// held counts all messages of the service queue, those that it delays too, as the broker's tools show them.
func (sc *scene) held() int {
	sc.t.Helper()
	n := -1
	out := brokertest.Eval(sc.t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(<<%q>>, <<%q>>), [{messages, N}] = rabbit_amqqueue:info(Q, [messages]), N`,
		sc.queue(), brokertest.VhostName(sc.t)))
	_, _ = fmt.Sscan(out, &n)
	return n
}

// TestNativePurge: a purge removes the messages that wait, too, by AMQP and by rabbitmqctl. The replica goes on counting
// them.
func TestNativePurge(t *testing.T) {
	t.Parallel()
	for name, purge := range map[string]func(*scene) int{
		"AMQP": func(sc *scene) int {
			n, err := sc.channel().QueuePurge(sc.queue(), false)
			if err != nil {
				sc.t.Error(err)
			}
			return n
		},
		"rabbitmqctl": func(sc *scene) (n int) {
			out := brokertest.Eval(sc.t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(<<%q>>, <<%q>>), {ok, N} = rabbit_amqqueue:purge(Q), N`,
				sc.queue(), brokertest.VhostName(sc.t)))
			_, _ = fmt.Sscan(out, &n)
			return n
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc, s := waitingScene(t, 5, nil)
			if n := purge(sc); n != 5 {
				t.Errorf("the purge removed %d messages of 5 that wait", n)
			}
			eventually(t, "the queue is empty", func() bool { return sc.held() == 0 })
			if n := s.metric("sidecar_waiting_messages"); n != 5 || sc.ready(sc.dlq()) != 0 {
				t.Errorf("the replica counts %v, %d are parked", n, sc.ready(sc.dlq()))
			}
		})
	}
}

// TestNativeExpiration: an expiration that ends while the message waits takes effect when the delay ends.
func TestNativeExpiration(t *testing.T) {
	t.Parallel()
	sc, _ := waitingScene(t, 1, func(m *amqp.Publishing) { m.Expiration = "100" })
	dead, short := sc.prefix+".dead", sc.prefix+".short"
	for queue, args := range map[string]amqp.Table{
		dead: nil, short: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
	} {
		if err := sc.declare(queue, args); err != nil {
			t.Fatal(err)
		}
	}
	later := message("later")
	later.Expiration = "1000"
	sc.publish("", short, later)
	eventually(t, "a message that expires later has expired", func() bool { return sc.ready(dead) == 1 })
	if sc.held() != 1 || sc.ready(sc.dlq()) != 0 {
		t.Errorf("the message has left its delay: %d in the queue, %d dead letters", sc.held(), sc.ready(sc.dlq()))
	}
}

// TestNativeExpirationAfterADelay: an expired message is dead-lettered in the place of its next attempt. It takes the two
// seconds of the delay, which must be longer than the expiration, which must be longer than the way to the app.
func TestNativeExpirationAfterADelay(t *testing.T) {
	t.Parallel()
	soon := nativeScene(t).with("RETRY_DELAY", "2s")
	soon.app.otherwise(func(*delivery) answer { return status(409) })
	soon.run()
	m := message("m")
	m.Expiration = "1500"
	soon.sendMessage(m)
	h := soon.take(soon.dlq(), 1)[0].Headers
	if death := fmt.Sprint(h["x-death"]); !strings.Contains(death, "reason:expired") || h["x-final-reason"] != nil {
		t.Errorf("%v", h)
	}
	if n := len(soon.app.seen("m")); n > 1 {
		t.Errorf("POSTed %d times", n)
	}
}

// TestNativeMaxLength: a limit of the queue's length counts the messages that wait, while none is ready.
func TestNativeMaxLength(t *testing.T) {
	t.Parallel()
	sc, _ := waitingScene(t, 3, nil)
	brokertest.Ctl(t, "set_policy", "short", ".*", `{"max-length":3}`)
	eventually(t, "the queue is full", func() bool { return !sc.accepted(message("more")) })
	if n := sc.ready(sc.queue()); n != 0 {
		t.Errorf("%d messages are ready", n)
	}
}
