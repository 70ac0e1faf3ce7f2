package calibrate

import (
	"errors"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/depth"
)

func (s *script) tags() {
	q := s.queue("tags", nil)
	s.put(q, amqp.Publishing{}, "a", "b", "c")
	s.must(s.ch.Qos(2, 0, false))
	deliveries, err := s.ch.Consume(q, "first", false, false, false, false, nil)
	s.must(err)
	s.say("%s", render(<-deliveries))
	d := <-deliveries
	s.say("%s", render(d))
	s.must(s.ch.Ack(d.DeliveryTag, true)) // both
	s.say("%s", render(<-deliveries))
	s.must(s.ch.Close())
	s.ch = s.channel()
	s.get(s.ch, q)
}

func (s *script) unknownTag() {
	ch := s.channel()
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	s.must(ch.Ack(7, false))
	e := <-closed
	s.say("closed: %d %s", e.Code, e.Reason)
}

func (s *script) retries(name string, args amqp.Table) {
	q, _ := s.pair(name, shortTTL, args)
	s.put(q, amqp.Publishing{Headers: amqp.Table{"mine": "kept"}}, "a")
	for range 2 {
		s.must(s.get(s.ch, q).Nack(false, false))
	}
	s.must(s.get(s.ch, q).Nack(false, true))
	for range 2 {
		s.must(s.get(s.ch, q).Nack(false, false))
	}
	s.must(s.get(s.ch, q).Ack(false))
}

func (s *script) republished() {
	q, _ := s.pair("again", shortTTL, nil)
	s.put(q, amqp.Publishing{}, "a")
	for range 2 {
		s.must(s.get(s.ch, q).Nack(false, false))
	}
	d := s.get(s.ch, q)
	s.put(q, amqp.Publishing{Headers: d.Headers}, "copy")
	s.must(d.Ack(false))
	s.must(s.get(s.ch, q).Nack(false, false))
	s.must(s.get(s.ch, q).Ack(false))
}

// automaticCycle: "a" would return although no consumer rejected it; "marker", which went into the wait queue
// after it, does come.
func (s *script) automaticCycle() {
	q, wait := s.pair("cycle", findableTTL, nil)
	s.put(q, amqp.Publishing{Expiration: "1"}, "a")
	d := s.get(s.ch, wait)
	s.must(d.Nack(false, true))
	s.put(wait, amqp.Publishing{}, "marker")
	s.must(s.get(s.ch, q).Ack(false))
}

func (s *script) movedByHand() {
	q, wait := s.pair("moved", findableTTL, nil)
	s.put(q, amqp.Publishing{Expiration: "1"}, "a")
	d := s.get(s.ch, wait)
	s.put(q, amqp.Publishing{Headers: d.Headers}, "copy")
	s.must(d.Ack(false))
	s.must(s.get(s.ch, q).Nack(false, false))
	s.put(wait, amqp.Publishing{}, "marker")
	for {
		d := s.get(s.ch, q)
		s.must(d.Ack(false))
		if d.MessageId == "marker" {
			return
		}
	}
}

func (s *script) threeDeaths() {
	b, wait := s.pair("three.b", shortTTL, nil)
	a := s.queue("three.z", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
	s.put(a, amqp.Publishing{}, "a")
	s.must(s.get(s.ch, a).Nack(false, false))
	for range 2 {
		s.must(s.get(s.ch, b).Nack(false, false))
	}
	s.must(s.get(s.ch, b).Ack(false))
}

func (s *script) headOfLine() {
	out := s.queue("line.out", nil)
	q := s.queue("line", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": out})
	s.put(q, amqp.Publishing{Expiration: "400"}, "long")
	s.put(q, amqp.Publishing{Expiration: "1"}, "short")
	s.get(s.ch, out)
	s.get(s.ch, out)
}

func (s *script) missing() {
	out := s.queue("missing.out", nil)
	q := s.queue("missing", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "missing.none"})
	s.put(q, amqp.Publishing{}, "a")
	s.must(s.get(s.ch, q).Nack(false, false))
	s.put(out, amqp.Publishing{}, "marker")
	s.get(s.ch, out)
	_, ok, err := s.ch.Get(q, false)
	s.must(err)
	s.say("still there: %t", ok)
}

func (s *script) requeued(name string, args amqp.Table) {
	q := s.queue(name, args)
	s.put(q, amqp.Publishing{}, "a", "b", "c", "d", "e")
	tags := map[string]amqp.Delivery{}
	for range 3 {
		d := s.get(s.ch, q)
		tags[d.MessageId] = d
	}
	for _, id := range []string{"b", "a", "c"} {
		s.must(tags[id].Nack(false, true))
	}
	s.await(q, 5)
	for range 5 {
		s.must(s.get(s.ch, q).Ack(false))
	}
}

// await waits until so many messages are ready: some queues settle a moment after the channel did.
func (s *script) await(queue string, n int) {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		q, err := depth.Of(s.ch, queue)
		s.must(err)
		if q.Messages == n {
			return
		}
	}
	s.t.Fatalf("%s never held %d messages", queue, n)
}

// returned: what a quorum queue counts of the ways back.
func (s *script) returned() {
	q := s.queue("back", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(2147483647)})
	s.put(q, amqp.Publishing{Headers: amqp.Table{"x-delivery-count": int32(7)}}, "a")
	s.must(s.get(s.ch, q).Nack(false, true))
	s.must(s.get(s.ch, q).Reject(true))
	s.get(s.ch, q)
	s.must(s.ch.Close())
	s.ch = s.channel()
	s.get(s.ch, q)
	other := s.connect()
	s.must(s.conn.Close()) // in good order, with the message unacked
	s.conn = other
	s.ch = s.channel()
	s.must(s.get(s.ch, q).Ack(false))
}

// writtenCount: what is left of the text that a consumer wrote into x-delivery-count when it published a message to wait.
// A quorum queue of 3.10 writes its own count on every message that is fetched, but not on every one that is delivered.
func (s *script) writtenCount(name string, args amqp.Table) {
	q, wait := s.pair(name, shortTTL, args)
	s.put(wait, amqp.Publishing{Headers: amqp.Table{"x-delivery-count": "3"}}, "a")
	deliveries, err := s.ch.Consume(q, "", false, false, false, false, nil)
	s.must(err)
	next := func() amqp.Delivery {
		d := <-deliveries
		s.say("%s", render(d))
		return d
	}
	s.must(next().Nack(false, true))
	s.must(next().Reject(true))
	s.must(next().Ack(false))
}

func (s *script) deliveryLimit() {
	out := s.queue("limit.out", nil)
	q := s.queue("limit", amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": int32(2), "x-dead-letter-exchange": "",
		"x-dead-letter-routing-key": out,
	})
	s.put(q, amqp.Publishing{}, "a")
	for range 3 {
		s.must(s.get(s.ch, q).Reject(true))
	}
	s.get(s.ch, out)
}

func (s *script) unroutable() {
	ch := s.channel()
	s.must(ch.Confirm(false))
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1))
	s.must(ch.Publish("", "nowhere", true, false, amqp.Publishing{MessageId: "a"}))
	c := <-confirms
	select { // the return comes before the confirm
	case r := <-returns:
		s.say("returned %s: %d %s %q", r.MessageId, r.ReplyCode, r.ReplyText, r.RoutingKey)
	default:
		s.say("not returned yet")
	}
	s.say("confirmed %d: %t", c.DeliveryTag, c.Ack)
	s.must(ch.Publish("", "nowhere", false, false, amqp.Publishing{MessageId: "b"}))
	c = <-confirms
	s.say("not mandatory: confirmed %d: %t, returned %d", c.DeliveryTag, c.Ack, len(returns))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	s.must(ch.Publish("missing", "key", true, false, amqp.Publishing{MessageId: "c"}))
	e := <-closed
	s.say("closed: %d %s", e.Code, e.Reason)
}

func (s *script) confirms() {
	q := s.queue("confirms", nil)
	for range 2 { // they, too, begin at 1 on every channel
		ch := s.channel()
		s.must(ch.Confirm(false))
		confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 5))
		for i := range 5 {
			s.must(ch.Publish("", q, true, false, amqp.Publishing{MessageId: strconv.Itoa(i)}))
		}
		var tags []uint64
		for range 5 {
			c := <-confirms
			if !c.Ack {
				s.t.Fatalf("publish %d was not confirmed", c.DeliveryTag)
			}
			tags = append(tags, c.DeliveryTag)
		}
		slices.Sort(tags)
		s.say("confirmed %v", tags)
	}
}

func (s *script) cancelled() {
	q := s.queue("cancelled", nil)
	_, err := s.ch.Consume(q, "consumer", false, false, false, false, nil)
	s.must(err)
	cancels := s.ch.NotifyCancel(make(chan string, 1))
	_, err = s.channel().QueueDelete(q, false, false, false)
	s.must(err)
	s.say("cancelled: %s", <-cancels)
	var closed *amqp.Error
	if _, err := s.channel().QueueDeclarePassive(q, true, false, false, false, nil); errors.As(err, &closed) {
		s.say("closed: %d %s", closed.Code, closed.Reason)
	}
}

// delayed: "a" returns behind "b", which is published later, where the queue delays it, and before it elsewhere. A nack
// brings it back at once, the end of a channel after the delay.
func (s *script) delayed() {
	q := s.queue("delayed", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 100, "x-delayed-retry-type": "failed",
		"x-delayed-retry-min": findableTTL, "x-delayed-retry-max": findableTTL})
	s.put(q, amqp.Publishing{Headers: amqp.Table{"mine": "kept"}}, "a")
	a := s.get(s.ch, q)
	for _, back := range []func() error{
		func() error { return a.Reject(true) },
		func() error { return a.Nack(false, true) },
		func() error { return a.Reject(true) },
		func() error {
			err := s.ch.Close()
			s.ch = s.channel()
			return err
		},
	} {
		s.must(back())
		s.put(q, amqp.Publishing{}, "b")
		for range 2 {
			if d := s.get(s.ch, q); d.MessageId == "a" {
				a = d
			} else {
				s.must(d.Ack(false))
			}
		}
	}
	s.must(a.Ack(false))
}

// growing: "a", which was rejected twice, returns behind "b", which was rejected once and later.
func (s *script) growing() {
	q := s.queue("growing", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 100, "x-delayed-retry-type": "failed",
		"x-delayed-retry-min": 700, "x-delayed-retry-max": 1400})
	s.put(q, amqp.Publishing{}, "a")
	for range 2 {
		s.must(s.get(s.ch, q).Reject(true))
	}
	s.put(q, amqp.Publishing{}, "b")
	first := s.get(s.ch, q)
	if first.MessageId == "a" { // nothing delays it
		s.must(first.Ack(false))
		s.must(s.get(s.ch, q).Ack(false))
		return
	}
	s.must(first.Reject(true))
	for range 2 {
		s.must(s.get(s.ch, q).Ack(false))
	}
}
