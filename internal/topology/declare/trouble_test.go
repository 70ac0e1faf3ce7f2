package declare

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
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
	s, err := broker.NewDialer(broker.Options{
		URLs: func() ([]string, error) { return []string{brokertest.URL(t)}, nil }, Name: "test", Timeout: time.Second,
	}).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	calm := node.Alarm()
	for range 2 { // the first one meets the alarm
		if findings, err := MayPublish(t.Context(), s, p, topology.ModeDeclare); len(findings) > 0 || !errors.Is(err, broker.ErrBlocked) {
			t.Errorf("during the alarm: %v, %v", findings, err)
		}
	}
	time.Sleep(1200 * time.Millisecond) // longer than any call may take
	calm()
	brokertest.Eventually(t, time.Minute, "not blocked", func() bool { return !s.Blocked() })
	if findings, err := MayPublish(t.Context(), s, p, topology.ModeDeclare); len(findings) > 0 || err != nil {
		t.Errorf("after the alarm: %v, %v", findings, err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
}
