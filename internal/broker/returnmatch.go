package broker

import "sidecar/internal/amqpwire"

// returns are messages that the broker returned on a channel, until the confirm of each has come too. basic.return
// carries no delivery tag, so a return is matched by content. Among identical messages the first confirmed is reported
// unroutable; as many are reported as were returned, no matter whose confirm comes first, or never.
type returns map[amqpwire.Fingerprint]*equalReturns

type equalReturns struct {
	n   int
	why *ReturnedError // of the last one
}

func (r *returns) add(f amqpwire.Fingerprint, why *ReturnedError) {
	if *r == nil {
		*r = returns{}
	}
	equal := (*r)[f]
	if equal == nil {
		equal = &equalReturns{}
		(*r)[f] = equal
	}
	equal.n++
	equal.why = why
}

func (r *returns) count(f amqpwire.Fingerprint) int {
	if equal := (*r)[f]; equal != nil {
		return equal.n
	}
	return 0
}

// match returns why an equal message was returned, once for each that was; nil when none was.
func (r *returns) match(f *amqpwire.Fingerprint) error {
	equal := (*r)[*f]
	if equal == nil {
		return nil
	}
	if equal.n--; equal.n == 0 {
		delete(*r, *f)
	}
	return equal.why
}

// fingerprint returns the fingerprint of the message. The caller holds the stream's lock.
func (r *Receipt) fingerprint() *amqpwire.Fingerprint {
	if r.print == nil {
		f := amqpwire.FingerprintOf(r.pub.Exchange, r.pub.Key, &r.pub.Msg)
		r.print = &f
	}
	return r.print
}
