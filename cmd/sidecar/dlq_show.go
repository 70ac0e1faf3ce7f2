package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/config"
	"sidecar/internal/deadletter"
	"sidecar/internal/terminal"
)

func dlqShow(c *call) execution {
	c.takesUsual()
	maxBody := 64 << 10
	c.flags.Func("max-body", "show at most `SIZE` of the body: a number of bytes, or one followed by KiB or MiB "+
		"(default 64KiB)", func(v string) error {
		size, err := config.ParseSize(v)
		maxBody = int(min(size, 1<<30))
		return err
	})
	noBody := c.flags.Bool("no-body", false, "leave the body out")
	return func(ctx context.Context) error {
		if len(c.words) == 0 || c.words[0] == "" {
			return c.misuse("give a message id or a reference, as list prints them")
		}
		if *noBody {
			maxBody = 0
		}
		return c.readOnly(ctx, func(q deadletter.Queues) error {
			m, more, err := q.Find(ctx, c.words[0], maxBody)
			if err != nil {
				return err
			}
			if more > 0 {
				c.note("%s with this message id too: sidecar dlq list --limit 0 --id %s lists their references",
					number(more, "other message"), m.MessageID)
			}
			if c.json {
				return c.document(m)
			}
			c.show(m, time.Now())
			return nil
		})
	}
}

func (c *call) show(m *deadletter.Full, now time.Time) {
	c.showFacts(m, now)
	if m.Answer != "" {
		c.say("\nanswer\n%s", strings.TrimSuffix(terminal.Lines(m.Answer), "\n"))
	}
	c.say("\nproperties")
	for name, value := range m.Properties.All() {
		c.row(strings.ReplaceAll(name, "_", " "), amqpvalue.Text(value))
	}
	c.showHeaders(m.Headers)
	c.showJourney(m)
	if m.Body != nil {
		c.showBody(m.Body)
	}
}

func (c *call) row(name, value string) {
	if value != "" {
		c.say("  %-16s  %s", name, terminal.Line(value))
	}
}

func (c *call) showFacts(m *deadletter.Full, now time.Time) {
	c.say("message")
	c.row("message id", cmp.Or(m.MessageID, "-"))
	c.row("correlation id", m.CorrelationID)
	c.row("reference", m.Ref)
	c.row("position", strconv.Itoa(m.Position)+" from the head of the queue")
	if t := m.ParkedAt; !t.IsZero() {
		c.row("parked", fmt.Sprintf("%s (%s)", t.UTC().Format(time.RFC3339), ago(t, now)))
	}
	c.row("reason", cmp.Or(m.Reason, "-"))
	c.row("status", statusText(m.Status))
	c.row("error", m.Error)
	c.row("detail", m.Detail)
	c.row("problem type", m.Problem.Type)
	c.row("problem title", m.Problem.Title)
	c.row("problem detail", m.Problem.Detail)
	c.row("retries", strconv.Itoa(m.RetryCount))
	c.row("redriven", number(m.RedriveCount, "time"))
	c.row("service's queue", m.OriginalQueue)
	c.row("subscription", m.Subscription)
	if m.Foreign {
		c.row("", "another service's message: redrive and discard leave it alone")
	}
	c.row("published to", fmt.Sprintf("exchange %q, routing key %q", m.OriginalExchange, m.RoutingKey))
	c.row("group", m.Group)
}

func (c *call) showHeaders(h amqpvalue.TypedTable) {
	if len(h) == 0 {
		return
	}
	c.say("\nheaders")
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		v := h[name]
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\n", terminal.Line(name), amqpvalue.TypeOf(v),
			terminal.Line(amqpvalue.Text(v)))
	}
	_ = w.Flush() // the flush of c.out reports what goes wrong
}

// showJourney prints x-death, the first step first: the broker keeps the latest first.
func (c *call) showJourney(m *deadletter.Full) {
	if len(m.Journey) == 0 {
		return
	}
	c.say("\njourney (x-death, from its beginning)")
	for i, s := range slices.Backward(m.Journey) {
		by := fmt.Sprintf("arrived by exchange %q", s.Exchange)
		if len(s.RoutingKeys) > 0 {
			by += " with key " + strconv.Quote(strings.Join(s.RoutingKeys, ", "))
		}
		at := ""
		if !s.At.IsZero() {
			at = ", at first " + s.At.UTC().Format(time.RFC3339)
		}
		c.say("  %d. left %s: %s, %s%s; %s", len(m.Journey)-i, terminal.Line(s.Queue), terminal.Line(s.Reason),
			number(s.Count, "time"), at, terminal.Line(by))
	}
}

func (c *call) showBody(b *deadletter.Body) {
	how := b.Format
	if b.Truncated {
		how += ", only its beginning: more with --max-body"
	}
	c.say("\nbody (%s, %s)", bytesText(b.Size), how)
	if b.Text != "" {
		c.say("%s", strings.TrimSuffix(terminal.Lines(b.Text), "\n"))
	}
}
