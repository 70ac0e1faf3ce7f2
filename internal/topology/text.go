package topology

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Variant names the type of the queues that the plan declares. Those that exist keep theirs.
func (p *Plan) Variant() string {
	if p.Quorum {
		return "quorum queues" + unasked
	}
	if p.untyped() {
		return "classic queues" + unasked + " (quorum if that is the virtual host's default)"
	}
	return "classic queues" + unasked
}

// untyped reports whether the service's queue is declared without a type: then the virtual host decides.
func (p *Plan) untyped() bool { return !p.Quorum && p.OwnQueue().Args[ArgType] == nil }

// Text describes the plan for people: the declared objects, and the routes of a message.
func (p *Plan) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "topology %s for service %s, %s, %d retries\n", p.Preset, p.Service, p.Variant(), p.MaxRetries)
	fmt.Fprint(w, "\nEXCHANGE\tTYPE\n")
	for _, x := range p.Exchanges {
		fmt.Fprintf(w, "%s\t%s\n", x.Name, cmp.Or(x.Type, "(not declared here)"))
	}
	fmt.Fprint(w, "\nQUEUE\tKIND\tARGUMENTS\n")
	for _, q := range p.Queues {
		fmt.Fprintf(w, "%s\t%s\t%s\n", q.Name, q.Kind, cmp.Or(arguments(q.Args), "-"))
	}
	p.bindingsText(w)
	fmt.Fprintf(w, "\nWHAT HAPPENS\tBY\tTO\na message arrives\tconsume from\t%s\n", p.Queue)
	waits := min(len(p.Waits), p.MaxRetries) // others only serve messages that ask for their delay
	for i, path := range p.Waits[:waits] {
		if path.By == ByDelay {
			fmt.Fprintf(w, "a failure waits %s\treject and requeue\t%s, which delays it\n", p.DelaysText(), path.Queue)
			break
		}
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

// bindingsText writes the bindings, with a column for arguments only if there are any.
func (p *Plan) bindingsText(w io.Writer) {
	title, args := "QUEUE", func(amqp.Table) string { return "" }
	if slices.ContainsFunc(p.Bindings, func(b Binding) bool { return len(b.Args) > 0 }) {
		title, args = "QUEUE\tARGUMENTS", func(t amqp.Table) string { return "\t" + cmp.Or(arguments(t), "-") }
	}
	fmt.Fprintf(w, "\nBINDING\tKEY\t%s\n", title)
	for _, x := range p.Bindings {
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", x.Exchange, quoteKey(x.Key), x.Queue, args(x.Args))
	}
}

func (w *WaitPath) sentence(attempt, retries, of int) string {
	when := "a failure waits " + w.Tier()
	if of > 1 {
		when = fmt.Sprintf("failure %d waits %s", attempt, w.Tier())
	}
	if of > 1 && attempt == of && retries > of {
		when = fmt.Sprintf("failure %d and later wait %s", attempt, w.Tier())
	}
	if w.By == ByReject {
		return when + "\treject\t" + w.Queue
	}
	return when + "\t" + w.Route.sentence()
}

func (r *Route) sentence() string {
	return fmt.Sprintf("publish to %s, key %s\t%s", cmp.Or(r.Exchange, "the default exchange"), quoteKey(r.Key), r.Queue)
}

func arguments(t amqp.Table) string {
	args := make([]string, 0, len(t))
	for k, v := range t {
		if v == "" {
			v = `""`
		}
		args = append(args, fmt.Sprintf("%s=%v", k, v))
	}
	slices.Sort(args)
	return strings.Join(args, " ")
}

func quoteKey(key string) string { return cmp.Or(key, `""`) }

// unasked ends the subject of a statement that holds only if no queue of another type exists: the broker was not asked.
const unasked = " where none exists"

// Warnings says what people should know about a plan that works, one sentence each. Of a service's queue that exists
// and could not be compared, only what holds for both types of queues.
func (p *Plan) Warnings() []string {
	if p.OwnQueue().Unseen {
		certain, _ := p.WarningsUnasked()
		return certain
	}
	return p.warnings()
}

// WarningsUnasked are Warnings before the broker was asked, which may have queues of another type: certain hold for
// both types, planned only for new queues, and say so. The type that a declaration without one makes is not known
// either.
func (p *Plan) WarningsUnasked() (certain, planned []string) {
	other := p.clone()
	if other.Quorum = !p.Quorum; !p.FromFile && !p.DelaysItself() {
		other.setType(!p.Quorum)
	}
	always := other.warnings()
	for _, text := range p.warnings() {
		if slices.Contains(always, text) {
			certain = append(certain, text)
		} else {
			if text = strings.Replace(text, ": ", unasked+": ", 1); p.untyped() {
				text += " (this does not hold if quorum is the virtual host's default)"
			}
			planned = append(planned, text)
		}
	}
	return certain, planned
}

func (p *Plan) warnings() []string {
	var w []string
	if !p.Quorum && p.OwnQueue().asFound()[ArgType] != TypeQuorum {
		better := p.Say("{queue-type}=quorum loses none")
		if p.FromFile {
			better = "quorum queues lose none"
		}
		w = append(w, fmt.Sprintf("%s is a classic queue: messages in retry transit can be lost when the broker is "+
			"killed; %s", p.Queue, better))
	}
	if back := p.WayBack(); back != nil {
		w = append(w, fmt.Sprintf("retries return through exchange %s: every other queue they match there gets them again; "+
			"sidecars with this topology ack them unseen, other consumers have to take duplicates", back.Exchange))
	}
	if x, q := p.exchange(p.Park.Exchange), p.queue(p.Park.Queue); x != nil && x.Shared && x.Type == "fanout" &&
		!q.Shared {
		w = append(w, fmt.Sprintf("exchange %s copies what any service parks into every queue bound to it, %s too: %s",
			x.Name, q.Name, p.Say("set {dlx} as well as {dlq}")))
	}
	for _, d := range p.ownProperties() {
		if d.Judgement == Weaker {
			w = append(w, fmt.Sprintf("%s: %s: %s", d.Object, d.Property, d.Reason))
		}
	}
	if p.Park == (Route{}) {
		w = append(w, p.Say("{dead-letter}: a message that has used up its retries is discarded: nothing keeps it"))
	}
	return append(w, p.notes...)
}
