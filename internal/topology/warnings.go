package topology

import "fmt"

// Warnings says what people should know about a plan that works, one sentence each.
func (p *Plan) Warnings() []string {
	var w []string
	if !p.Quorum {
		w = append(w, fmt.Sprintf("%s is a classic queue: messages in retry transit can be lost when the broker is killed; "+
			"SIDECAR_QUEUE_TYPE=quorum loses none", p.Queue))
	}
	if back := p.WayBack(); back != nil {
		w = append(w, fmt.Sprintf("retries come back through exchange %s: every other queue they match there gets them again; "+
			"sidecars with this topology ack them unseen, other consumers have to take duplicates", back.Exchange))
	}
	if x, q := p.exchange(p.Park.Exchange), p.queue(p.Park.Queue); x != nil && x.Shared && x.Type == "fanout" && !q.Shared {
		w = append(w, fmt.Sprintf("exchange %s copies what any service parks into every queue bound to it, %s too: set SIDECAR_DLX as well as SIDECAR_DLQ",
			x.Name, q.Name))
	}
	if q := p.queue(p.Queue); q != nil && q.Args[argTTL] != nil {
		w = append(w, fmt.Sprintf("messages leave %s after %v ms, tried or not; x-final-* headers do not say so, x-death does", p.Queue, q.Args[argTTL]))
	}
	if p.Unverified {
		w = append(w, "SIDECAR_TOPOLOGY_MODE=none: nobody looks whether retried and parked messages are kept")
	}
	return append(w, p.idle...)
}
