package management

import (
	"fmt"
	"slices"
	"strings"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// MissingBindings returns the bindings of the plan in whose place the broker has none. Those of an exchange or a queue
// that does not exist are not among them.
func (s *Seen) MissingBindings(p *topology.Plan) []topology.Binding {
	var missing []topology.Binding
	for _, wanted := range p.Bindings {
		kind, found := s.Exchanges[wanted.Exchange]
		if _, both := s.Queues[wanted.Queue]; !found || !both {
			continue
		}
		if !slices.ContainsFunc(s.Bindings, func(b topology.Binding) bool { return covers(kind, b, wanted) }) {
			missing = append(missing, wanted)
		}
	}
	return missing
}

// Instead describes the bindings that the broker has between the exchange and the queue of a missing binding.
func (s *Seen) Instead(missing topology.Binding) string {
	var all []string
	for _, b := range s.Bindings {
		if b.Exchange == missing.Exchange && b.Queue == missing.Queue {
			text := fmt.Sprintf("key %q", b.Key)
			if len(b.Args) > 0 {
				text += " and arguments " + amqpvalue.Text(b.Args)
			}
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// covers reports whether an exchange of that type routes by the binding b everything that it would route by wanted.
func covers(kind string, b, wanted topology.Binding) bool {
	if b.Exchange != wanted.Exchange || b.Queue != wanted.Queue {
		return false
	}
	sameArguments := amqpvalue.Text(b.Args) == amqpvalue.Text(wanted.Args)
	switch kind {
	case "fanout":
		return true
	case "headers":
		return sameArguments
	case "topic":
		return message.NewTopic(b.Key).Covers(wanted.Key)
	case "direct":
		return b.Key == wanted.Key
	}
	return b.Key == wanted.Key && sameArguments
}
