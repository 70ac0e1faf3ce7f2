package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text describes the plan for people: the declared objects, and the routes of a message.
func (p *Plan) Text() string {
	var b strings.Builder
	variant := "classic queues"
	if p.Quorum {
		variant = "quorum queues"
	}
	fmt.Fprintf(&b, "topology %s for service %s, %s, %d retries\n", p.Preset, p.Service, variant, p.MaxRetries)

	table(&b, "EXCHANGE\tTYPE", len(p.Exchanges), func(i int) string {
		e := p.Exchanges[i]
		return e.Name + "\t" + cmp.Or(e.Type, "(not declared here)")
	})
	table(&b, "QUEUE\tKIND\tARGUMENTS", len(p.Queues), func(i int) string {
		q := p.Queues[i]
		return q.Name + "\t" + string(q.Kind) + "\t" + cmp.Or(q.arguments(), "-")
	})
	table(&b, "BINDING\tKEY\tQUEUE", len(p.Bindings), func(i int) string {
		x := p.Bindings[i]
		return x.Exchange + "\t" + quoteKey(x.Key) + "\t" + x.Queue
	})
	waits := min(len(p.Waits), p.MaxRetries) // others only serve messages that ask for their delay
	table(&b, "WHAT HAPPENS\tBY\tTO", waits+2, func(i int) string {
		switch {
		case i == 0:
			return "a message arrives\tconsume from\t" + p.Queue
		case i <= waits:
			return p.Waits[i-1].sentence(i, p.MaxRetries, len(p.Waits))
		case p.Park == (Route{}):
			return "nothing is left to try\tack\tdiscarded"
		}
		return "nothing is left to try\t" + p.Park.sentence()
	})
	return b.String()
}

func (w *WaitPath) sentence(attempt, retries, of int) string {
	when := "a failure waits " + w.Tier
	if of > 1 {
		when = fmt.Sprintf("failure %d waits %s", attempt, w.Tier)
	}
	if of > 1 && attempt == of && retries > of {
		when = fmt.Sprintf("failure %d and later wait %s", attempt, w.Tier)
	}
	if w.ByReject {
		return when + "\treject\t" + w.Queue
	}
	return when + "\t" + w.Route.sentence()
}

func (r *Route) sentence() string {
	return fmt.Sprintf("publish to %s, key %s\t%s", cmp.Or(r.Exchange, "the default exchange"), quoteKey(r.Key), r.Queue)
}

// arguments lists a queue's arguments by name.
func (q *Queue) arguments() string {
	args := make([]string, 0, len(q.Args))
	for k, v := range q.Args {
		if v == "" {
			v = `""`
		}
		args = append(args, fmt.Sprintf("%s=%v", k, v))
	}
	slices.Sort(args)
	return strings.Join(args, " ")
}

func quoteKey(key string) string { return cmp.Or(key, `""`) }

func table(b *strings.Builder, header string, n int, row func(int) string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\n", header)
	for i := range n {
		fmt.Fprintln(w, row(i))
	}
	_ = w.Flush() // writes to memory
}
