package declare

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestSessionTrouble: a lost connection says nothing about the topology.
func TestSessionTrouble(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-cincout"})
	s := session(t, brokertest.URL(t))
	s.Kill()
	if Compare(context.Background(), s, p, topology.ModeDeclare) {
		t.Error("a lost connection fits")
	}
	for name, do := range map[string]func() error{
		"ensure":    func() error { _, err := Ensure(context.Background(), s, p, topology.ModeDeclare); return err },
		"verify":    func() error { _, err := Ensure(context.Background(), s, p, topology.ModeVerify); return err },
		"depths":    func() error { _, err := Measure(context.Background(), s, p); return err },
		"preflight": func() error { _, err := Preflight(context.Background(), s, p, topology.ModeDeclare); return err },
		"publishing": func() error {
			_, err := MayPublish(context.Background(), s, p, topology.ModeDeclare)
			return err
		},
	} {
		if err := do(); err == nil {
			t.Errorf("%s: a lost connection went unnoticed", name)
		}
	}
}

// TestOneQuestionTooMany: an answer that costs the connection is not an answer.
func TestOneQuestionTooMany(t *testing.T) {
	t.Parallel()
	p := prober{s: session(t, brokertest.URL(t))}
	refusal := p.ask(context.Background(), "ask for the impossible", func(ch *amqp.Channel, _ bool) error {
		if err := ch.Publish("", "x", false, true, amqp.Publishing{}); err != nil { // immediate: NOT_IMPLEMENTED
			return err
		}
		_, err := ch.QueueDeclarePassive("x", true, false, false, false, nil)
		return err
	})
	if refusal != nil || p.err == nil {
		t.Errorf("%v, %v", refusal, p.err)
	}
}

// TestMayPublishInAnAlarm: the broker answers when the alarm is over. Until then nothing is known, at once, and the
// connection stays up all the while.
func TestMayPublishInAnAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	p := build(t, topology.Options{Service: "wms-cincout"})
	s := must.Get(broker.NewDialer(broker.Options{
		URLs: func() ([]string, error) { return []string{brokertest.URL(t)}, nil }, Name: "test", Timeout: 3 * time.Second,
	}).Dial(t.Context()))(t)
	t.Cleanup(s.Close)
	calm := node.Alarm()
	for range 2 { // the first one meets the alarm
		if findings, err := MayPublish(t.Context(), s, p, topology.ModeDeclare); len(findings) > 0 || !errors.Is(err, broker.ErrBlocked) {
			t.Errorf("during the alarm: %v, %v", findings, err)
		}
	}
	time.Sleep(3200 * time.Millisecond) // longer than any call may take
	calm()
	brokertest.Eventually(t, time.Minute, "not blocked", func() bool { return !s.Blocked() })
	if findings, err := MayPublish(t.Context(), s, p, topology.ModeDeclare); len(findings) > 0 || err != nil {
		t.Errorf("after the alarm: %v, %v", findings, err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
}

// TestDrifted reads what RabbitMQ 3.10, 4.0 and 4.3 really said.
func TestDrifted(t *testing.T) {
	t.Parallel()
	const in = "PRECONDITION_FAILED - "
	for _, c := range []struct {
		reason string
		want   drift
	}{
		{in + "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '6000' but current is '5000'", drift{"x-message-ttl", "5000", false}},
		{in + "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value '5' of type 'signedint' but current is none", drift{"x-message-ttl", nil, false}},
		{in + "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but current is the value '5' of type 'signedint'", drift{"x-max-length", int64(5), false}},
		{in + "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'quorum' but current is 'classic'", drift{"x-queue-type", "classic", false}},
		{in + "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value 'quorum' of type 'longstr' but current is none", drift{"x-queue-type", topology.TypeClassic, false}},
		{in + "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'", drift{"durable", false, false}},
		{in + "inequivalent arg 'type' for exchange 'e' in vhost '/': received 'topic' but current is 'fanout'", drift{"type", "fanout", false}},
		{in + "inequivalent arg 'x-dead-letter-exchange' for queue '" + strings.Repeat("q", 160), drift{"x-dead-letter-exchange", nil, true}},
	} {
		got, ok := drifted(&amqp.Error{Code: amqp.PreconditionFailed, Reason: c.reason})
		if !ok || got != c.want {
			t.Errorf("%s:\n%+v %t", c.reason, got, ok)
		}
	}
	for _, e := range []amqp.Error{
		{Code: amqp.PreconditionFailed, Reason: in + "invalid property 'non-durable' for queue 'q' in vhost '/'"},
		{Code: amqp.NotFound, Reason: "inequivalent arg 'x'"},
	} {
		if _, ok := drifted(&e); ok {
			t.Errorf("%v is not drift", e)
		}
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]denial{
		"ACCESS_REFUSED - access to queue 'q' in vhost 'p' refused for user 'lim'":                      {"", "q", "p", "lim"},
		"ACCESS_REFUSED - configure access to exchange 're' in vhost 'p' refused for user 'lim'":        {"configure", "re", "p", "lim"},
		"ACCESS_REFUSED - write access to exchange 'amq.default' in vhost 'p' refused for user 'lim'":   {"write", "amq.default", "p", "lim"},
		"ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'lim'":                 {"read", "q", "/", "lim"},
		"ACCESS_REFUSED - configure access to queue '" + strings.Repeat("q", 180) + "...":               {},
		"ACCESS_REFUSED - queue name 'amq.q' contains reserved prefix 'amq.*'":                          {},
		"ACCESS_REFUSED - operation not permitted on the default exchange":                              {},
		"ACCESS_REFUSED - read access to topic 'a.b' in exchange 'e' in vhost 'p' refused for user 'l'": {"read", "a.b", "p", "l"},
	} {
		if got := denied(&amqp.Error{Code: amqp.AccessRefused, Reason: reason}); got != want {
			t.Errorf("%s:\n%+v, want %+v", reason, got, want)
		}
	}
}

// TestQueueLimit: in every mode each queue that the virtual host does not allow is one finding, with the broker's words
// and without the advice to declare it.
func TestQueueLimit(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout"})
	brokertest.QueueLimit(t, 1)
	brokertest.Queue(t, url, "another", nil)
	for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
		refused := map[string]int{}
		declared, inspected := ensure(t, url, p, mode), must.Get(Inspect(t.Context(), session(t, url), p, mode))(t).Findings
		for i, f := range slices.Concat(declared, inspected) {
			if !strings.HasPrefix(f.Object, "queue ") {
				continue // an exchange, which verify does not make
			}
			refused[f.Object]++
			if (i >= len(declared) || mode == topology.ModeVerify) && f.Problem == ProblemMissing && !strings.HasPrefix(brokertest.Version(t), "3.") {
				continue // from RabbitMQ 4.0 on the limit shows only when a queue is declared
			}
			if f.Problem != ProblemRefused || !strings.Contains(f.Found, "queue limit") || strings.Contains(f.Fix, "creates") {
				t.Errorf("%s: %s", mode, f)
			}
		}
		for _, q := range p.Queues {
			if refused[q.Title()] != 2 {
				t.Errorf("%s: %d findings of %s, want one of each check", mode, refused[q.Title()], q.Name)
			}
		}
	}
	brokertest.QueueLimit(t, 10)
	fits(t, url, p, topology.ModeDeclare)
}

// TestNodeDown: a queue whose node is down is not missing. It has one finding, with the broker's words and no advice.
func TestNodeDown(t *testing.T) {
	t.Parallel()
	url, p := declared(t, topology.Options{Service: "wms-cincout"})
	for _, q := range p.Queues {
		says, down := brokertest.NodeDown(t, q.Name)
		if !NodeDown(says) || NodeDown("NOT_FOUND - no queue 'q' in vhost '/'") {
			t.Errorf("%q is not understood", says)
		}
		for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
			watched := must.Get(Measure(t.Context(), session(t, url), p))(t).Missing
			for _, all := range [][]Finding{ensure(t, url, p, mode), must.Get(Inspect(t.Context(), session(t, url), p, mode))(t).Findings, watched} {
				all = slices.DeleteFunc(all, func(f Finding) bool { return f.Object != q.Title() })
				if !down && len(all) == 0 {
					continue
				}
				if len(all) != 1 || all[0].Problem != ProblemRefused || !strings.Contains(all[0].Found, "is down") || all[0].Fix != "" {
					t.Errorf("%s: %v", mode, all)
				}
			}
		}
	}
}

// TestCountOfABusyQueue: for a quorum queue that does not answer in time the broker answers, with zeros.
func TestCountOfABusyQueue(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	s := session(t, url)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "busy"), amqp.Table{topology.ArgType: topology.TypeQuorum})
	brokertest.Send(t, url, queue, "one", "two")
	brokertest.WaitReady(t, url, queue, 2)
	brokertest.Busy(t, queue)
	if n, err := Ready(t.Context(), s, queue); n != 2 || err != nil {
		t.Errorf("%d messages, %v", n, err)
	}
}
