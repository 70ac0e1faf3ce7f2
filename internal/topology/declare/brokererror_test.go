package declare

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// TestDrifted reads what RabbitMQ 3.10, 4.0 and 4.3 really said.
func TestDrifted(t *testing.T) {
	t.Parallel()
	const in = "PRECONDITION_FAILED - "
	for _, c := range []struct{ reason, property, found string }{
		{in + "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '6000' but current is '5000'", "x-message-ttl", "5000"},
		{in + "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value '5' of type 'signedint' but current is none", "x-message-ttl", "none"},
		{in + "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but current is the value '5' of type 'signedint'", "x-max-length", "5"},
		{in + "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'quorum' but current is 'classic'", "x-queue-type", "classic"},
		{in + "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value 'quorum' of type 'longstr' but current is none", "x-queue-type", "none"},
		{in + "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'", "durable", "false"},
		{in + "inequivalent arg 'type' for exchange 'e' in vhost '/': received 'topic' but current is 'fanout'", "type", "fanout"},
		{in + "inequivalent arg 'x-dead-letter-exchange' for queue '" + strings.Repeat("q", 160), "x-dead-letter-exchange", "unknown"},
	} {
		property, found, ok := drifted(&amqp.Error{Code: amqp.PreconditionFailed, Reason: c.reason})
		if !ok || property != c.property || found != c.found {
			t.Errorf("%s:\n%q %q %t", c.reason, property, found, ok)
		}
	}
	for _, e := range []amqp.Error{
		{Code: amqp.PreconditionFailed, Reason: in + "invalid property 'non-durable' for queue 'q' in vhost '/'"},
		{Code: amqp.NotFound, Reason: "inequivalent arg 'x'"},
	} {
		if _, _, ok := drifted(&e); ok {
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

func TestPermissions(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-in", Bindings: []topology.Binding{{Exchange: "wms.main-exchange"}, {Exchange: "foreign", Key: "k"}}})
	all := `^(foreign|wms\.dlq\.wms-in|wms\.main-exchange|wms\.queue\.wms-in|wms\.retry-exchange\.wms-in|wms\.retry-queue\.wms-in)$`
	for mode, want := range map[topology.Mode]topology.Permissions{
		topology.ModeDeclare: {
			Configure: `^(wms\.dlq\.wms-in|wms\.main-exchange|wms\.queue\.wms-in|wms\.retry-exchange\.wms-in|wms\.retry-queue\.wms-in)$`,
			Write:     `^(amq\.default|wms\.queue\.wms-in|wms\.retry-exchange\.wms-in|wms\.retry-queue\.wms-in)$`,
			Read:      all,
		},
		topology.ModeVerify: {Configure: `^$`, Write: `^(amq\.default|wms\.retry-exchange\.wms-in)$`, Read: all},
		topology.ModeNone:   {Configure: `^$`, Write: `^(amq\.default|wms\.retry-exchange\.wms-in)$`, Read: `^(wms\.queue\.wms-in)$`},
	} {
		if got := p.Permissions(mode); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", mode, got, want)
		}
	}
}

// TestFixes: a finding without a way out is a riddle.
func TestFixes(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-in"})
	wait, main := queueOf(queue(p, "wms.retry-queue.wms-in")), queueOf(queue(p, p.Queue))
	quorum := build(t, topology.Options{Service: "wms-in", QueueType: "quorum"})
	durable := queueOf(queue(quorum, quorum.Queue))
	mainExchange, retryExchange := exchangeOf(p.Exchanges[0]), exchangeOf(p.Exchanges[1])
	for _, c := range []struct{ name, fix, want string }{
		{"ttl of a wait queue", wait.fix("x-message-ttl", "6000", "v"), "set the delay to 6s, or empty the queue and delete it (rabbitmqctl delete_queue -p v wms.retry-queue.wms-in"},
		{"ttl that is not one", wait.fix("x-message-ttl", "none", ""), "empty the queue and delete it (rabbitmqctl delete_queue -p VHOST"},
		{"ttl of the service queue", main.fix("x-message-ttl", "6000", "v"), "empty the queue"},
		{"quorum by default of the vhost", main.fix("x-queue-type", "quorum", "v"), "set SIDECAR_QUEUE_TYPE=quorum"},
		{"classic, quorum wanted", durable.fix("x-queue-type", "classic", "v"), "set SIDECAR_QUEUE_TYPE=classic, or empty"},
		{"delivery limit", main.fix("x-delivery-limit", "20", "v"), "empty the queue"},
		{"type of the main exchange", mainExchange.fix("type", "topic", "v"), "set SIDECAR_EXCHANGE_TYPE=topic"},
		{"type of the retry exchange", retryExchange.fix("type", "topic", "v"), "delete the exchange"},
		{"alternate exchange", mainExchange.fix("alternate-exchange", "x", "v"), "delete the exchange"},
	} {
		if !strings.Contains(c.fix, c.want) {
			t.Errorf("%s: %s", c.name, c.fix)
		}
	}
	for property, want := range map[string]string{
		"durable": "true", "auto_delete": "false", "exclusive": "false", "x-queue-type": "classic", "x-max-length": "none",
		"x-dead-letter-routing-key": "retry",
	} {
		if got := main.wanted(property); got != property+" "+want {
			t.Errorf("%s of a queue: %s", property, got)
		}
	}
	for property, want := range map[string]string{"type": "fanout", "durable": "true", "internal": "false", "alternate-exchange": "none"} {
		if got := mainExchange.wanted(property); got != property+" "+want {
			t.Errorf("%s of an exchange: %s", property, got)
		}
	}
}

func TestFindingInOneLine(t *testing.T) {
	t.Parallel()
	f := Finding{Object: `queue "q"`, Problem: ProblemDrift, Wanted: "x-message-ttl 5000", Found: "6000", Fix: "do this"}
	if got := f.String(); got != `queue "q": drift, wanted x-message-ttl 5000, found 6000: do this` {
		t.Error(got)
	}
	if got := (Finding{Object: "o", Problem: ProblemRefused}).String(); got != "o: refused" {
		t.Error(got)
	}
}
