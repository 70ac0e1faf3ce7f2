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
	variant := "classic queues"
	if p.Quorum {
		variant = "quorum queues"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "topology %s for service %s, %s, %d retries\n", p.Preset, p.Service, variant, p.MaxRetries)
	fmt.Fprint(w, "\nEXCHANGE\tTYPE\n")
	for _, x := range p.Exchanges {
		fmt.Fprintf(w, "%s\t%s\n", x.Name, cmp.Or(x.Type, "(not declared here)"))
	}
	fmt.Fprint(w, "\nQUEUE\tKIND\tARGUMENTS\n")
	for _, q := range p.Queues {
		fmt.Fprintf(w, "%s\t%s\t%s\n", q.Name, q.Kind, cmp.Or(q.arguments(), "-"))
	}
	fmt.Fprint(w, "\nBINDING\tKEY\tQUEUE\n")
	for _, x := range p.Bindings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", x.Exchange, quoteKey(x.Key), x.Queue)
	}
	fmt.Fprintf(w, "\nWHAT HAPPENS\tBY\tTO\na message arrives\tconsume from\t%s\n", p.Queue)
	waits := min(len(p.Waits), p.MaxRetries) // others only serve messages that ask for their delay
	for i, path := range p.Waits[:waits] {
		fmt.Fprintln(w, path.sentence(i+1, p.MaxRetries, len(p.Waits)))
	}
	last := "ack\tdiscarded"
	if p.Park != (Route{}) {
		last = p.Park.sentence()
	}
	fmt.Fprintf(w, "nothing is left to try\t%s\n", last)
	_ = w.Flush() // writes to memory
	return b.String()
}

func (w *WaitPath) sentence(attempt, retries, of int) string {
	when := "a failure waits " + w.Tier()
	if of > 1 {
		when = fmt.Sprintf("failure %d waits %s", attempt, w.Tier())
	}
	if of > 1 && attempt == of && retries > of {
		when = fmt.Sprintf("failure %d and later wait %s", attempt, w.Tier())
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

// Warnings says what people should know about a plan that works, one sentence each.
func (p *Plan) Warnings() []string {
	var w []string
	if !p.Quorum {
		w = append(w, fmt.Sprintf("%s is a classic queue: messages in retry transit can be lost when the broker is killed; "+
			"SIDECAR_QUEUE_TYPE=quorum loses none", p.Queue))
	}
	if back := p.WayBack(); back != nil {
		w = append(w, fmt.Sprintf("retries return through exchange %s: every other queue they match there gets them again; "+
			"sidecars with this topology ack them unseen, other consumers have to take duplicates", back.Exchange))
	}
	if x, q := p.exchange(p.Park.Exchange), p.queue(p.Park.Queue); x != nil && x.Shared && x.Type == "fanout" &&
		!q.Shared {
		w = append(w, fmt.Sprintf("exchange %s copies what any service parks into every queue bound to it, %s too: set "+
			"SIDECAR_DLX as well as SIDECAR_DLQ", x.Name, q.Name))
	}
	if q := p.queue(p.Queue); q != nil && q.Args[ArgTTL] != nil {
		w = append(w, fmt.Sprintf("messages leave %s after %v ms, tried or not; x-final-* headers do not say so, x-death "+
			"does", p.Queue, q.Args[ArgTTL]))
	}
	if p.Park == (Route{}) {
		w = append(w, "SIDECAR_DEAD_LETTER: a message that has used up its retries is discarded: nothing keeps it")
	}
	if p.Unverified {
		w = append(w, "SIDECAR_TOPOLOGY_MODE=none: whether retried and parked messages are kept is not checked")
	}
	return append(w, p.notes...)
}
