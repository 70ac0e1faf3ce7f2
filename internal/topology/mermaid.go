package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mermaid draws plans as one Mermaid flowchart: solid arrows are publishes and deliveries, dotted ones are what the
// broker does by itself.
func Mermaid(plans ...*Plan) string {
	var d drawing
	p := Merge(plans...)
	d.WriteString("flowchart TD\n")
	for _, x := range p.Exchanges {
		d.line("%s{{%s}}", p.node(x.Name, ""), label(x.Name+" ("+cmp.Or(x.Type, "exchange")+")"))
	}
	for _, q := range p.Queues {
		text := q.Name
		if ttl, ok := q.Args[ArgTTL]; ok {
			text += fmt.Sprintf(" (TTL %v ms)", ttl)
		}
		d.line("%s[(%s)]", p.node("", q.Name), label(text))
	}
	d.line("sidecar([sidecar])")
	d.line("app([%s])\n", label(plans[0].Service))
	for _, b := range p.Bindings {
		d.arrow(p.node(b.Exchange, ""), "-->", strings.TrimSpace(b.Key+" "+arguments(b.Args)), p.node("", b.Queue))
	}
	for _, q := range p.Queues {
		if exchange, key, ok := q.DeadLetter(); ok {
			why := "dead-letter"
			if _, waits := q.Args[ArgTTL]; waits {
				why = "after TTL"
			}
			d.arrow(p.node("", q.Name), "-.->", why, p.node(exchange, key))
		}
	}
	d.WriteString("\n")
	for _, own := range plans {
		d.line("%s -->|consume| sidecar", p.node("", own.Queue))
	}
	d.line("sidecar <-->|POST, answer| app")
	for _, own := range plans {
		own.drawSettlements(&d, p)
	}
	return d.String()
}

// drawSettlements draws how messages of p leave, in a drawing of all plans.
func (p *Plan) drawSettlements(d *drawing, all *Plan) {
	own := all.node("", p.Queue)
	d.line("sidecar -->|425: requeue| %s", own)
	for _, w := range p.Waits {
		switch w.By {
		case ByReject:
			d.line("sidecar -->|failed: reject| %s", own)
		case ByDelay:
			d.arrow("sidecar", "-->", "failed: reject, wait "+p.DelaysText(), own)
		default:
			all.drawPublish(d, w.Route, "failed: publish, wait "+w.Tier())
		}
	}
	if p.Park != (Route{}) {
		all.drawPublish(d, p.Park, fmt.Sprintf("retry >= %d: publish", p.MaxRetries))
	}
}

func (p *Plan) drawPublish(d *drawing, r Route, text string) {
	if r.Exchange != "" {
		text += ", key " + r.Key
	}
	d.arrow("sidecar", "-->", text, p.node(r.Exchange, r.Queue))
}

// node names an exchange in a drawing, or a queue where there is no exchange. A binding may end in an exchange.
func (p *Plan) node(exchange, name string) string {
	if i := slices.IndexFunc(p.Queues, func(q Queue) bool { return q.Name == name }); exchange == "" && i >= 0 {
		return fmt.Sprintf("q%d", i)
	}
	name = cmp.Or(exchange, name)
	return fmt.Sprintf("x%d", slices.IndexFunc(p.Exchanges, func(x Exchange) bool { return x.Name == name }))
}

type drawing struct{ strings.Builder }

func (d *drawing) line(format string, args ...any) { fmt.Fprintf(d, "    "+format+"\n", args...) }

func (d *drawing) arrow(from, kind, text, to string) {
	if text != "" {
		kind += "|" + label(text) + "|"
	}
	d.line("%s %s %s", from, kind, to)
}

// label quotes a text for Mermaid, which takes it for Markdown and has no escape but character codes.
func label(s string) string {
	return `"` + strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;", "#", "#35;", "*", "#42;").Replace(s) + `"`
}
