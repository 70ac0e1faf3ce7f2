package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mutant is a sidecar with one deliberate bug. Its source is the product's with a few texts replaced, by an overlay of
// the build: the product itself has no place where a bug could be switched on.
type mutant struct {
	name   string
	edits  []edit
	caught []string // invariants of which at least one must be broken
	flags  []string // of the run that shows it
	queues bool     // it is a run over several queues
}

// edit replaces a text that is in a file exactly once. When it does not any more the mutant is out of date, and
// that is an error.
type edit struct{ file, old, new string }

const (
	storm = "-messages=1500 -warm-up=300 -liveness=100"
	parks = "-messages=1200 -warm-up=100 -liveness=100 -never=15"

	// Long enough for messages to use up their retries while faults happen.
	lasting = "-messages=4000 -warm-up=100 -liveness=100 -never=15"
)

// flags splits a line of flags.
func flags(line ...string) []string { return strings.Fields(strings.Join(line, " ")) }

var mutants = []mutant{
	{
		name: "acks before the POST",
		edits: []edit{{
			"internal/consume/handle.go", "		return c.try(a)\n	})\n	d.session.settle(*a, by)\n",
			"		d.session.hand(ending{tag: a.DeliveryTag, final: topology.FinalAck})\n		return c.try(a)\n	})\n" +
				"	_ = by\n	a.Free()\n",
		}},
		caught: []string{"I1", "I2"}, flags: flags(storm, "-faults=3 -kinds=sidecar-kill"),
	},
	{
		name:   "acks on 3xx",
		edits:  []edit{{"internal/retry/policy.go", "	case o.OK():\n", "	case o.OK() || o.Status/100 == 3:\n"}},
		caught: []string{"I2"}, flags: flags(parks, "-faults=0"),
	},
	{
		name: "dead-letters what it has not begun when it stops",
		edits: []edit{{
			"internal/consume/session.go", "	s.settle(a, by)\n", "	by.Final = topology.FinalReject\n	s.end(a, by)\n",
		}},
		caught: []string{"I5", "I7"}, flags: flags(storm, "-faults=8 -kinds=sidecar-term -rate=1500 -concurrency=2 "+
			"-prefetch=64"),
	},
	{
		name: "parks without waiting for the confirm",
		edits: []edit{{
			"internal/broker/publisher.go", "		err = r.await(ctx)\n", "		go func() { _ = r.await(context.WithoutCancel(ctx)) " +
				"}()\n",
		}},
		caught: []string{"I1", "I2"}, flags: flags(lasting, "-faults=3 -kinds=dlq-delete"),
	},
	{
		name: "parks without asking for what cannot be routed",
		edits: []edit{{
			"internal/broker/stream.go", "r.pub.Key, !isDirectReply(r.pub), msg,", "r.pub.Key, false, msg,",
		}},
		caught: []string{"I1", "I2"}, flags: flags(lasting, "-faults=3 -kinds=dlq-delete"),
	},
	{ // what a client library does that revives connections behind one's back
		name: "settles on whatever connection is open",
		edits: []edit{
			{"internal/broker/subscription.go", "	\"fmt\"\n", "	\"fmt\"\n	\"sync/atomic\"\n"},
			{"internal/broker/subscription.go", "// watch ends when",
				"var standing atomic.Pointer[amqp.Channel]\n\n// watch ends when"},
			{"internal/broker/subscription.go", "	sub := &Subscription{", "	standing.Store(ch)\n	sub := &Subscription{"},
			{"internal/broker/subscription.go", "s.ch.Ack(tag, multiple)", "standing.Load().Ack(tag, multiple)"},
			{"internal/broker/subscription.go", "s.ch.Nack(tag, false, true)", "standing.Load().Nack(tag, false, true)"},
			{"internal/broker/subscription.go", "s.ch.Nack(tag, false, false)", "standing.Load().Nack(tag, false, false)"},
			{"internal/consume/handle.go", "	if s.gone() { // the message", "	if false { // the message"},
		},
		caught: []string{"I1", "I2", "I5", "I6", "I7"}, flags: flags("-messages=6000 -warm-up=100 -liveness=100 -faults=6 " +
			"-kinds=cut -rate=150 -app-timeout=6s"),
	},
	{
		name:   "acks everything before what has waited long",
		edits:  []edit{{"internal/consume/settler.go", "s.acker.Ack(f.tag, false)", "s.acker.Ack(f.tag, true)"}},
		caught: []string{"I1", "I2", "I6", "I9", "I11"}, flags: flags(storm, "-faults=4 -kinds=sidecar-kill -never=5"),
	},
	{
		name: "acks what it has not begun when it stops",
		edits: []edit{{
			"internal/consume/session.go", "	s.settle(a, by)\n", "	by.Final = topology.FinalAck\n	s.end(a, by)\n",
		}},
		caught: []string{"I1"}, flags: flags(storm, "-faults=8 -kinds=sidecar-term -rate=1500 -concurrency=2 -prefetch=64"),
	},
	{
		name: "begins to count again when a message is moved back",
		edits: []edit{{
			"internal/message/message.go", "	if !hasPublished && !hasFinal && !redriven {",
			"	if hasFinal {\n		m.RetryCount = 0\n	}\n	if !hasPublished && !hasFinal && !redriven {",
		}},
		caught: []string{"I14"}, flags: flags(parks, "-faults=3 -kinds=redrive"),
	},
	{
		name: "tries once more than it may",
		edits: []edit{{
			"internal/message/message.go", "return m.RetryCount >= m.MaxRetries }", "return m.RetryCount > m.MaxRetries }",
		}},
		caught: []string{"I4", "I5"}, flags: flags(parks, "-faults=0"),
	},
	{
		name: "POSTs again when the connection breaks",
		edits: []edit{{
			"internal/http1/roundtrip.go", "f, sent, err := c.over(ctx, idle, x); sent {",
			"f, sent, err := c.over(ctx, idle, x); sent && f != message.FailureReset {",
		}},
		caught: []string{"I5", "I6"}, flags: flags(storm, "-faults=0"),
	},
	{
		name: "lets a header value end its line",
		edits: []edit{{
			"internal/dispatch/headers.go", "e[c] = c < 0x20 || c > 0x7e",
			"e[c] = c < 0x20 && c != '\\r' && c != '\\n' || c > 0x7e",
		}},
		caught: []string{"I3"}, flags: flags(storm, "-faults=0"),
	},
}

// build compiles a mutant from the source tree in root.
func (m *mutant) build(root, dir string) (binary string, err error) {
	texts := map[string]string{}
	for _, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(root, e.file))
		if err != nil {
			return "", err
		}
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			texts[path] = string(text)
		}
		if n := strings.Count(texts[path], e.old); n != 1 {
			return "", fmt.Errorf("mutant %q is out of date: %s holds %q %d times", m.name, e.file, e.old, n)
		}
		texts[path] = strings.Replace(texts[path], e.old, e.new, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprintf("edit%d.go", len(replace)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "sidecar")
	cmd := exec.Command("go", "build", "-overlay", list, "-o", binary, "./cmd/sidecar")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mutant %q: %w: %s", m.name, err, out)
	}
	return binary, nil
}
