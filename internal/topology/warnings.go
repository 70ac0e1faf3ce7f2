package topology

import (
	"fmt"
	"slices"
	"strings"
)

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

// notes says what settings come to that may surprise.
func (b *builder) notes(given *Options) []string {
	var notes []string
	if !slices.ContainsFunc(b.p.Exchanges, func(x Exchange) bool { return b.main(x.Name) }) {
		if given.ExchangeType != "" {
			notes = append(notes, fmt.Sprintf("SIDECAR_EXCHANGE_TYPE=%s is not used: SIDECAR_BINDINGS does not name "+
				"exchange %s", given.ExchangeType, b.o.Exchange))
		}
		makesNames := strings.Contains(b.b.wait.exchange+b.b.wait.backExchange+b.b.park.exchange, "{exchange}")
		if given.Exchange != "" && !makesNames {
			notes = append(notes, fmt.Sprintf("SIDECAR_EXCHANGE=%s is not used: SIDECAR_BINDINGS does not name it",
				given.Exchange))
		}
	}
	if given.Prefix == "" && given.Exchange == "" && strings.Contains(b.b.exchanges[0], "{prefix}") &&
		!strings.Contains(b.o.Service, "-") {
		notes = append(notes, fmt.Sprintf("SIDECAR_SERVICE: %q has no hyphen, so its prefix is %q: it shares the main "+
			"exchange with every other service without a hyphen; SIDECAR_PREFIX or SIDECAR_EXCHANGE gives it "+
			"another", b.o.Service, b.o.Prefix))
	}
	return notes
}
