package topology

import (
	"cmp"
	"strconv"
	"time"

	"sidecar/internal/message"
)

// Final is what happens to the original delivery in the end.
type Final uint8

// The finals.
const (
	FinalAck     Final = iota
	FinalRequeue       // a nack: the queue delivers the message again. No attempt; some count it towards their limit
	FinalReject        // a nack without requeue: the broker dead-letters the message
	FinalDelay         // a reject with requeue: the queue delays the message itself, and counts that
)

// SettlementKind is what comes before the final.
type SettlementKind uint8

// What comes before the final.
const (
	SettleNow     SettlementKind = iota // nothing
	SettlePublish                       // a publish, which has to be confirmed
	SettleHold                          // a wait here
	SettleRetreat                       // a wait until the broker delivers nothing more to this consumer
	SettleRoom                          // a wait until there is memory for the message
	SettleBehind                        // a detour to the end of the queue: a publish
	SettleAgain                         // no final: the message is tried again here after a wait
	SettleEarlier                       // a wait for the end of an attempt on an earlier session
)

// Settlement is a verdict in the terms of one topology: the only thing that settling obeys.
type Settlement struct {
	// Verdict as it is carried out and recorded. A retry that cannot leave safely becomes a park.
	Verdict message.Verdict
	Kind    SettlementKind
	Parks   bool // it began as a park, whether or not that is carried out

	// Publish goes first and must be confirmed before the original is settled; nil when there is nothing to publish.
	Publish *message.Publication
	Final   Final

	// Hold and Jitter belong to a requeue: wait Hold plus a random part of Jitter here before settling. Of a plan with
	// InPlace they also belong to a retry, and the message is tried again here instead.
	Hold, Jitter time.Duration

	// Pause asks this replica to take nothing for that long.
	Pause time.Duration

	// Detour belongs to a requeue too: when no place to wait here is free the message waits in the broker instead. It is
	// published and confirmed, then the original is acked; the retry count does not change. nil when the topology has no
	// such queue.
	Detour *message.Publication
}

// Released returns s without a publish: it gives the message back at once, uncounted, because of why.
func (s Settlement) Released(why message.Reason) Settlement {
	s.Verdict.Action, s.Verdict.Reason = message.Release, why
	s.Kind, s.Final, s.Publish, s.Detour = SettleNow, FinalRequeue, nil, nil
	return s
}

// deferredHold delays the requeue of a deferred message that could not be published to the end of its queue.
const deferredHold = time.Second

// Settlement turns a verdict on m into what has to be done in this topology. It is total and pure: it never fails,
// changes neither m nor its header table, and the publications it returns do not refer to m. A verdict it does not
// know gives the message back.
func (p *Plan) Settlement(m *message.Message, v message.Verdict) Settlement {
	s := Settlement{Verdict: v, Final: FinalRequeue, Pause: v.Pause}
	switch v.Action {
	case message.Ack, message.Discard:
		s.Final = FinalAck
	case message.Park:
		p.settlePark(&s, m)
	case message.Retry:
		p.settleRetry(&s, m)
	case message.Requeue:
		s.Hold, s.Jitter = v.Delay, v.Jitter
		s.Detour = p.detour(m, v.Delay)
		if s.Detour != nil && p.nearLimit(m) {
			s.Publish, s.Final, s.Hold, s.Jitter, s.Detour = s.Detour, FinalAck, 0, 0, nil
		}
	case message.Release:
		if v.Reason == message.ReasonDeferred {
			s.Detour, s.Hold = p.behind(m), deferredHold
		} else if p.nearLimit(m) {
			s.Detour = p.detour(m, 0)
		}
		if s.Detour != nil && p.nearLimit(m) {
			s.Publish, s.Final, s.Hold, s.Detour = s.Detour, FinalAck, 0, nil
		}
	}
	s.Kind = p.kind(&s)
	return s
}

func (p *Plan) kind(s *Settlement) SettlementKind {
	switch {
	case s.Publish != nil:
		return SettlePublish
	case p.InPlace && s.Hold > 0:
		return SettleAgain
	case p.InPlace || s.Final != FinalRequeue:
		return SettleNow
	case s.Verdict.Reason == message.ReasonDeferred:
		return SettleBehind
	case s.Verdict.Reason == message.ReasonAppDown:
		return SettleRetreat
	case s.Hold > 0 || s.Jitter > 0:
		return SettleHold
	}
	return SettleNow
}

// nearLimit reports whether m has been given back so often that one more time may be too many for the broker. It waits
// in a retry queue instead, where there is one: uncounted, and the broker counts its deliveries anew.
func (p *Plan) nearLimit(m *message.Message) bool {
	return p.RequeueLimit > 0 && message.Deliveries(m.Headers) >= p.RequeueLimit
}

// settlePark publishes the message to the dead-letter queue. Without one it is discarded.
func (p *Plan) settlePark(s *Settlement, m *message.Message) {
	s.Final = FinalAck
	if p.Park == (Route{}) {
		s.Verdict.Action = message.Discard
		return
	}
	s.Publish, s.Parks = p.parkPublication(m, &s.Verdict), true
}

// settleRetry sends the message to wait. A reject costs one frame, but only a message whose round trip the broker can
// count may leave by it; every other one is published, and one that would not fit a frame afterwards is parked.
func (p *Plan) settleRetry(s *Settlement, m *message.Message) {
	if len(p.Waits) == 0 {
		p.parkInstead(s, m, message.ReasonMaxRetries)
		return
	}
	if p.InPlace {
		s.Hold = cmp.Or(s.Verdict.Delay, p.tier(m.RetryCount).Delay)
		return
	}
	w, covered := p.waitFor(m.RetryCount, s.Verdict.Delay)
	if !covered {
		s.Pause = max(s.Pause, s.Verdict.Delay)
	}
	switch {
	case nearFrameMax(m):
		p.parkInstead(s, m, message.ReasonHeadersTooLarge)
	case w.By == ByDelay:
		s.Final = FinalDelay
	// A reject cannot correct a stamp.
	case w.By == ByReject && rejectable(m) && !p.stampedElsewhere(m.Headers):
		s.Final = FinalReject
	default:
		s.Final = FinalAck
		if s.Publish = p.retryPublication(m, w, m.RetryCount+1); s.Publish == nil {
			p.parkInstead(s, m, message.ReasonHeadersTooLarge)
		}
	}
}

func (p *Plan) parkInstead(s *Settlement, m *message.Message, r message.Reason) {
	s.Verdict.Action, s.Verdict.Reason, s.Verdict.Delay = message.Park, r, 0
	p.settlePark(s, m)
}

// waitFor picks the path for a retry: the shortest one that covers the delay the app asked for, else the one of the
// attempt, of which the last repeats. covered is false when the message would return before that delay is over.
func (p *Plan) waitFor(retries int, delay time.Duration) (w WaitPath, covered bool) {
	if w := p.shortest(delay); delay > 0 && p.Tiered && w.Delay >= delay {
		return w, true
	}
	return p.tier(retries), delay <= 0
}

// tier is the path of the attempt after so many retries.
func (p *Plan) tier(retries int) WaitPath { return p.Waits[min(max(retries, 0), len(p.Waits)-1)] }

// shortest is the shortest path of at least that delay, or the longest there is.
func (p *Plan) shortest(delay time.Duration) WaitPath {
	for _, w := range p.Waits {
		if w.Delay >= delay {
			return w
		}
	}
	return p.Waits[len(p.Waits)-1]
}

// rejectable reports whether the broker may dead-letter m, returns it and still counts it right. A broken x-death
// crashes the queue on some versions; a message that has left by expiry once is dropped by some as an automatic cycle.
// A redriven message carries its count in a header, and one that was moved manually has a count that is not the
// broker's any more: some versions start their own count again at one, so only a publish continues the count.
func rejectable(m *message.Message) bool {
	_, redriven := m.Headers[message.HeaderFinalRetryCount]
	return !redriven && !m.Malformed && !m.Looped && !m.Untrusted
}

// detour is used when no place to wait here is free: the message waits in the broker, uncounted.
func (p *Plan) detour(m *message.Message, delay time.Duration) *message.Publication {
	if len(p.Waits) == 0 || p.InPlace || p.DelaysItself() || nearFrameMax(m) {
		return nil
	}
	return p.retryPublication(m, p.shortest(delay), m.RetryCount)
}

// behind is m on its way to the end of its queue, uncounted; nil if that is not possible.
func (p *Plan) behind(m *message.Message) *message.Publication {
	if p.InPlace || nearFrameMax(m) {
		return nil
	}
	return p.retryPublication(m, WaitPath{Route: p.Redrive}, m.RetryCount)
}

// retryPublication is m on its way to a wait queue, nil if it would not fit a frame afterwards. retries is its count at
// the next delivery: it is in x-retry-count, and x-death is left out because brokers differ in whether they continue a
// copied one.
func (p *Plan) retryPublication(m *message.Message, w WaitPath, retries int) *message.Publication {
	h := copyHeaders(m, func(key string) bool { return brokerRecord(key) || senderSelected(key) })
	h[message.HeaderRetryCount] = count(retries)
	setHistory(h, m)
	if p.StampQueue {
		h[HeaderRetryQueue] = p.Queue
	}
	if p.CountHeader != "" {
		h[p.CountHeader] = strconv.Itoa(int(count(retries)) + 1)
	}
	pub := w.publication(message.KindRetry, m, h)
	if overweight(&pub.Msg, RetryReserve) {
		return nil
	}
	return pub
}
