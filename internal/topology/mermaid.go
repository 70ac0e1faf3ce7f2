package topology

import (
	"cmp"
	"fmt"
	"strings"
)

// Mermaid draws the plan as a Mermaid flowchart: solid arrows are publishes and deliveries, dotted ones are what the
// broker does by itself.
func (p *Plan) Mermaid() string {
	d := drawing{p: p, exchanges: map[string]string{}, queues: map[string]string{}}
	d.line("flowchart TD")
	d.nodes()
	d.line("    sidecar([sidecar])")
	d.line("    app([%s])", label(p.Service))
	d.line("")
	for _, b := range p.Bindings {
		d.arrow(d.exchanges[b.Exchange], d.queues[b.Queue], "-->", b.Key)
	}
	d.deadLetters()
	d.line("")
	d.line("    %s -->|consume| sidecar", d.queues[p.Queue])
	d.line("    sidecar <-->|POST, answer| app")
	d.line("    sidecar -->|425: requeue| %s", d.queues[p.Queue])
	for _, w := range p.Waits {
		if w.ByReject {
			d.line("    sidecar -->|failed: reject| %s", d.queues[p.Queue])
			continue
		}
		d.publish(w.Route, fmt.Sprintf("failed: publish, wait %s", w.Tier))
	}
	if p.Park != (Route{}) {
		d.publish(p.Park, fmt.Sprintf("retry >= %d: publish", p.MaxRetries))
	}
	return d.b.String()
}

type drawing struct {
	p                 *Plan
	b                 strings.Builder
	exchanges, queues map[string]string // name → node
}

func (d *drawing) line(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

func (d *drawing) arrow(from, to, kind, text string) {
	if text == "" {
		d.line("    %s %s %s", from, kind, to)
		return
	}
	d.line("    %s %s|%s| %s", from, kind, label(text), to)
}

func (d *drawing) nodes() {
	for i, e := range d.p.Exchanges {
		node := fmt.Sprintf("x%d", i)
		d.exchanges[e.Name] = node
		d.line("    %s{{%s}}", node, label(e.Name+" ("+cmp.Or(e.Type, "exchange")+")"))
	}
	for i, q := range d.p.Queues {
		node := fmt.Sprintf("q%d", i)
		d.queues[q.Name] = node
		text := q.Name
		if ttl, ok := q.Args[ArgTTL]; ok {
			text += fmt.Sprintf(" (TTL %v ms)", ttl)
		}
		d.line("    %s[(%s)]", node, label(text))
	}
}

func (d *drawing) deadLetters() {
	for _, q := range d.p.Queues {
		exchange, key, ok := q.DeadLetter()
		if !ok {
			continue
		}
		why := "dead-letter"
		if _, waits := q.Args[ArgTTL]; waits {
			why = "after TTL"
		}
		to := d.exchanges[exchange]
		if exchange == "" {
			to = d.queues[key]
		}
		d.arrow(d.queues[q.Name], to, "-.->", why)
	}
}

func (d *drawing) publish(r Route, text string) {
	to := d.exchanges[r.Exchange]
	if r.Exchange == "" {
		to = d.queues[r.Queue]
	} else {
		text += ", key " + r.Key
	}
	d.arrow("sidecar", to, "-->", text)
}

// label quotes a text for Mermaid, which takes it for Markdown and knows no escape but character codes.
func label(s string) string {
	return `"` + strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;", "#", "#35;", "*", "#42;").Replace(s) + `"`
}
