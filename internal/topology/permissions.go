package topology

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sidecar/internal/message"
)

// DefaultExchange is what permissions call the exchange without a name.
const DefaultExchange = message.DefaultExchange

// Permissions are the least a broker user needs for a plan, as the three regular expressions of set_permissions.
type Permissions struct {
	Configure, Write, Read string
}

// Permissions returns what a user needs in a mode, when also these exchanges are published to.
func (p *Plan) Permissions(mode Mode, also ...string) Permissions {
	return Permit([]*Plan{p}, []Mode{mode}, also...)
}

// Permit returns what a user needs for all plans, each in its mode, when also these exchanges are published to.
func Permit(plans []*Plan, modes []Mode, also ...string) Permissions {
	var configure, write, read []string
	for i, p := range plans {
		c, w, r := p.permitted(modes[i], also)
		configure, write, read = append(configure, c...), append(write, w...), append(read, r...)
	}
	return Permissions{Configure: expression(configure), Write: expression(write), Read: expression(read)}
}

// permitted lists what a user may configure, write and read. Reading everything is asked for in verify mode too: from
// RabbitMQ 4.3 a user without any right on an object cannot even ask whether it exists.
func (p *Plan) permitted(mode Mode, also []string) (configure, write, read []string) {
	var objects, ours, written, published []string
	for _, e := range p.Exchanges {
		objects = append(objects, e.Name)
		if e.Type != "" {
			ours = append(ours, e.Name)
		}
	}
	for _, q := range p.Queues {
		objects, ours = append(objects, q.Name), append(ours, q.Name)
		if exchange, _, ok := q.DeadLetter(); ok { // checked when the queue is declared
			written = append(written, cmp.Or(exchange, DefaultExchange))
		}
	}
	for _, b := range p.Bindings {
		written = append(written, b.Queue)
	}
	for _, r := range p.PublishRoutes() {
		published = append(published, cmp.Or(r.Exchange, DefaultExchange))
	}
	for _, exchange := range also {
		published = append(published, cmp.Or(exchange, DefaultExchange))
	}
	switch mode {
	case ModeDeclare:
		return ours, append(written, published...), objects
	case ModeVerify:
		var compared []string
		if p.SingleActive { // the broker compares the arguments of a queue only for those who may declare it
			compared = []string{p.Queue}
		}
		return compared, published, objects
	}
	return nil, published, []string{p.Queue}
}

// PublishRoutes lists where retries, parked and redriven messages are published to. Every wait path counts, also one
// that usually leaves by reject: some messages cannot.
func (p *Plan) PublishRoutes() []Route {
	routes := []Route{p.Redrive}
	if p.Park != (Route{}) {
		routes = append(routes, p.Park)
	}
	for _, w := range p.Waits {
		if w.Route != (Route{}) && w.By != ByDelay {
			routes = append(routes, w.Route)
		}
	}
	return routes
}

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

// Text is p for people and scripts: one line for each of the three expressions, and the command that grants them
// to a user whose name is left to be filled in.
func (p Permissions) Text(vhost string) string {
	return fmt.Sprintf("configure  %s\nwrite      %s\nread       %s\n\n%s\n", p.Configure, p.Write, p.Read,
		p.Command(vhost, ""))
}

// Command is the rabbitmqctl line that grants p to user.
func (p Permissions) Command(vhost, user string) string {
	return fmt.Sprintf("rabbitmqctl set_permissions -p %s %s '%s' '%s' '%s'",
		cmp.Or(vhost, "VHOST"), cmp.Or(user, "USER"), p.Configure, p.Write, p.Read)
}
