package topology

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// defaultExchange is what permissions call the exchange without a name.
const defaultExchange = "amq.default"

// Permissions are the least a broker user needs for a plan, as the three regular expressions of set_permissions.
type Permissions struct {
	Configure, Write, Read string
}

// Permissions returns what a user needs in a mode. Reading everything is asked for in verify mode too: from RabbitMQ
// 4.3 a user without any right on an object cannot even ask whether it exists.
func (p *Plan) Permissions(mode Mode) Permissions {
	var objects, targets, bound []string
	for _, e := range p.Exchanges {
		objects = append(objects, e.Name)
	}
	for i := range p.Queues {
		q := &p.Queues[i]
		objects = append(objects, q.Name)
		if exchange, _, ok := q.deadLetter(); ok { // checked when the queue is declared
			targets = append(targets, cmp.Or(exchange, defaultExchange))
		}
	}
	for _, b := range p.Bindings {
		bound = append(bound, b.Queue)
	}
	published := p.publishTargets()
	switch mode {
	case ModeDeclare:
		var ours []string
		for _, name := range objects {
			if e := p.exchange(name); e == nil || e.Type != "" || p.queue(name) != nil {
				ours = append(ours, name)
			}
		}
		return Permissions{
			Configure: expression(ours), Write: expression(slices.Concat(bound, targets, published)), Read: expression(objects),
		}
	case ModeVerify:
		return Permissions{Configure: expression(nil), Write: expression(published), Read: expression(objects)}
	}
	return Permissions{Configure: expression(nil), Write: expression(published), Read: expression([]string{p.Queue})}
}

// publishTargets lists the exchanges that retries, parks and redrives are published to. Every wait path counts, also
// one that usually leaves by reject: some messages cannot.
func (p *Plan) publishTargets() []string {
	targets := []string{cmp.Or(p.Redrive.Exchange, defaultExchange)}
	if p.Park != (Route{}) {
		targets = append(targets, cmp.Or(p.Park.Exchange, defaultExchange))
	}
	for _, w := range p.Waits {
		targets = append(targets, cmp.Or(w.Exchange, defaultExchange))
	}
	return targets
}

// expression matches exactly the given names.
func expression(names []string) string {
	if len(names) == 0 {
		return "^$"
	}
	quoted := make([]string, 0, len(names))
	for _, n := range names {
		quoted = append(quoted, regexp.QuoteMeta(n))
	}
	slices.Sort(quoted)
	return "^(" + strings.Join(slices.Compact(quoted), "|") + ")$"
}

// command is the rabbitmqctl line that grants p to user.
func (p Permissions) command(vhost, user string) string {
	return fmt.Sprintf("rabbitmqctl set_permissions -p %s %s '%s' '%s' '%s'",
		cmp.Or(vhost, "VHOST"), cmp.Or(user, "USER"), p.Configure, p.Write, p.Read)
}
