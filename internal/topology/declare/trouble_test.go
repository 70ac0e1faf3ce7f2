package declare

import (
	"context"
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
	if EnsureAtOnce(context.Background(), s, p, topology.ModeDeclare) {
		t.Error("a lost connection fits")
	}
	for name, do := range map[string]func() error{
		"ensure":    func() error { _, err := Ensure(context.Background(), s, p, topology.ModeDeclare); return err },
		"verify":    func() error { _, err := Ensure(context.Background(), s, p, topology.ModeVerify); return err },
		"depths":    func() error { _, _, err := depthsOf(context.Background(), s, p); return err },
		"preflight": func() error { _, err := Preflight(context.Background(), s, p, topology.ModeDeclare); return err },
		"publishing": func() error {
			_, err := NewPublishPreflight(context.Background(), s, p, topology.ModeDeclare)
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

// TestPublishPreflightOutlastsAnAlarm: the broker answers when the alarm is over, however long that takes, and the
// connection stays up all the while.
func TestPublishPreflightOutlastsAnAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	p := build(t, topology.Options{Service: "wms-cincout"})
	s, err := broker.NewDialer(broker.Options{
		URLs: func() ([]string, error) { return []string{brokertest.URL(t)}, nil }, Name: "test", Timeout: time.Second,
	}).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	calm := node.Alarm()
	check := must.Get(NewPublishPreflight(t.Context(), s, p, topology.ModeDeclare))(t)
	answered := make(chan error, 1)
	go func() {
		findings, err := check.Run(t.Context())
		if len(findings) > 0 {
			t.Errorf("%v", findings)
		}
		answered <- err
	}()
	brokertest.Eventually(t, 30*time.Second, "blocked", s.Blocked)
	select {
	case err := <-answered:
		t.Fatalf("during the alarm: %v", err)
	case <-time.After(1200 * time.Millisecond): // longer than any call may take
	}
	calm()
	must.Do(t, <-answered)
	if err := s.Err(); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
}

// TestPublishPreflightEndsWithItsConnection.
func TestPublishPreflightEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-cincout"})
	for name, end := range map[string]func(*broker.Session, context.CancelFunc){
		"before it publishes": func(s *broker.Session, _ context.CancelFunc) { s.Kill() },
		"cancelled":           func(_ *broker.Session, cancel context.CancelFunc) { cancel() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		s := session(t, brokertest.URL(t))
		check := must.Get(NewPublishPreflight(ctx, s, p, topology.ModeDeclare))(t)
		end(s, cancel)
		if _, err := check.Run(ctx); err == nil {
			t.Errorf("%s: no error", name)
		}
		cancel()
	}
}
