package topology

import (
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// reach lists the queues of the plan that a message published to exchange with key ends in. Exchanges of others are
// not followed: what is bound to them is not ours to know.
func (p *Plan) reach(exchange, key string) []string {
	if exchange == "" && p.queue(key) != nil {
		return []string{key}
	}
	x := p.exchange(exchange)
	var queues []string
	for _, b := range p.Bindings {
		if x != nil && b.Exchange == exchange && x.matches(b, key) && !slices.Contains(queues, b.Queue) {
			queues = append(queues, b.Queue)
		}
	}
	return queues
}

// MayRoute reports whether a message published to exchange with key may end in a queue of the plan. Where no key
// decides, as with headers, it may. An exchange of others is taken for a topic exchange.
func (p *Plan) MayRoute(exchange, key string) bool {
	if exchange == "" {
		return p.queue(key) != nil
	}
	x := p.exchange(exchange)
	return x != nil && slices.ContainsFunc(p.Bindings, func(b Binding) bool {
		return b.Exchange == exchange &&
			(x.Type == "fanout" || x.Type == "headers" || message.NewTopic(b.Key).Match(key))
	})
}

// MayBring reports whether a binding may bring a message whose routing key matches the pattern. Where no key decides,
// as with headers, it may. An exchange of others is taken for a topic exchange if the key looks like one of those.
func (p *Plan) MayBring(b *Binding, pattern message.Topic) bool {
	x := p.exchange(b.Exchange)
	switch {
	case x != nil && x.Type == "direct":
		return pattern.Match(b.Key)
	case x != nil && (x.Type == "topic" || x.Type == "" && strings.ContainsAny(b.Key, ".*#")):
		return pattern.Overlaps(message.NewTopic(b.Key))
	}
	return true
}

func (x *Exchange) matches(b Binding, key string) bool {
	switch x.Type {
	case "fanout":
		return true
	case "headers": // without arguments it matches everything, with them it depends on the message
		return len(b.Args) == 0
	case "direct":
		return b.Key == key
	case "topic":
		return message.NewTopic(b.Key).Match(key)
	}
	return false
}

// WayBack returns the first binding by which retries return to the service's queue, nil if they return through the
// default exchange. No publish can prove it. Without it classic queues lose messages when their delay ends; quorum
// queues keep them, and the broker tries again after three to six minutes.
func (p *Plan) WayBack() *Binding {
	for _, w := range p.Waits {
		if back := p.wayBack(w); back != nil {
			return back
		}
	}
	return nil
}

// wayBack is WayBack for the retries that wait in w.
func (p *Plan) wayBack(w WaitPath) *Binding {
	if q := p.queue(w.Queue); q != nil && w.By != ByDelay {
		if exchange, key, _ := q.DeadLetter(); exchange != "" {
			return &Binding{Exchange: exchange, Key: key, Queue: p.Queue}
		}
	}
	return nil
}

// Foreign reports whether m is the retry of another service that was routed here because it returns through an exchange
// that this service is bound to. This service got the first delivery as well, so an ack loses nothing. The stamp alone
// is not enough: producers copy headers. A message that was published to the queue by its name, or with a key that no
// retry has, is for this service.
func (p *Plan) Foreign(d *amqp.Delivery) bool {
	if d.Exchange == "" || !p.stampedElsewhere(d.Headers) {
		return false
	}
	return p.WayBack() == nil || p.mayReturn(func(back *Binding) bool { return back.brings(d.RoutingKey) })
}

// stampedElsewhere reports whether the headers have the stamp of another queue.
func (p *Plan) stampedElsewhere(h amqp.Table) bool {
	queue, ok := h[HeaderRetryQueue].(string)
	return p.StampQueue && ok && queue != p.Queue
}

// mayReturn reports whether retries that wait return by a binding that fits.
func (p *Plan) mayReturn(fits func(back *Binding) bool) bool {
	return slices.ContainsFunc(p.Waits, func(w WaitPath) bool {
		back := p.wayBack(w)
		return back != nil && fits(back)
	})
}

// brings reports whether a message with that routing key can be a retry that returned by this binding. The retry of any
// service with this topology ends in the same word as our own. Wait queues that do not change the key say nothing.
func (b *Binding) brings(key string) bool { return b.Key == "" || lastWord(key) == lastWord(b.Key) }

// Read makes m the message of a delivery from the service's queue. Where its headers say that it was first published
// elsewhere and it has not returned, it was published by another client: the headers are not its history, and Untrusted
// makes every retry a publish, which corrects them.
func (p *Plan) Read(m *message.Message, d *amqp.Delivery) {
	m.FromDelivery(d, p.Queue, p.MaxRetries)
	if (m.Exchange != d.Exchange || m.RoutingKey != d.RoutingKey) && !p.returned(d) {
		m.Exchange, m.RoutingKey, m.Untrusted = d.Exchange, d.RoutingKey, true
	}
}

// returned reports whether a delivery came a way by which retries and redriven messages return.
func (p *Plan) returned(d *amqp.Delivery) bool {
	redriven := d.Exchange == p.Redrive.Exchange && d.RoutingKey == p.Redrive.Key
	if d.Exchange == "" || redriven {
		return true
	}
	return p.mayReturn(func(back *Binding) bool { return d.Exchange == back.Exchange && back.brings(d.RoutingKey) })
}

func lastWord(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }
