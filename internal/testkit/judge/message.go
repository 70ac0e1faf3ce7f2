package judge

import "strconv"

// Kind is what an attempt means for its message.
type Kind int

// The kinds.
const (
	Accepted  Kind = iota // acked
	Failed                // counted: a retry, or parked after the last attempt
	NotYet                // 425: requeued and not counted; parked when the retries are used up, if there are any
	Unwanted              // parked at once
	Discarded             // acked without having been processed
	Nothing               // not an attempt: the app was away, the sidecar stopped, or a batch failed as a whole
)

// Ends reports whether the message leaves permanently without being parked.
func (k Kind) Ends() bool { return k == Accepted || k == Discarded }

// Receipt is one request as the app saw it, and its answer. Times are Unix nanoseconds.
type Receipt struct {
	// the request, the first byte of the answer (the sidecar cannot have seen it earlier), its end; 0: not recorded
	At, Begun, Done int64
	Attempt, Count  int // the attempt and the retry count that the sidecar sent
	Of              int // messages of the request; not recorded where each has its own
	Status          int // of the answer; not positive: none, or not recorded
	Kind            Kind
	MayEnd          bool   // the sidecar may have seen an answer that ends the message
	Sum, Mark       string // of the body, if it was read, and of the header that every message carries
	Odd             string // a header that a message must not cause, or a property that changed
}

// Parked is one message of the dead-letter queue. Headers are as text, Types their Go types.
type Parked struct {
	Seq        int               `json:"seq"`
	ID         string            `json:"id"`
	Sum        string            `json:"sum"`
	At         int64             `json:"at"`
	Headers    map[string]string `json:"headers"`
	Types      map[string]string `json:"types"`
	Persistent bool              `json:"persistent"`
	Expiration string            `json:"expiration,omitempty"`
	Changed    bool              `json:"changed,omitempty"` // a property is not as it was published
}

// Because reports whether the message says that it was parked for this answer.
func (p *Parked) Because(r *Receipt) bool {
	status, answered := p.Headers["x-final-status-code"]
	return answered == (r.Status > 0) && (!answered || status == strconv.Itoa(r.Status))
}

// Message is what a run recorded about one message.
type Message struct {
	Name      string // for violations
	Sum, Mark string // as it was published
	Confirmed bool   // the broker has taken it: it must not be lost
	Fails     bool   // every attempt fails
	Receipts  []Receipt
	Parked    []*Parked
	Queued    int   // copies that were left in a queue
	Since     int64 // when the broker confirmed it; 0: not recorded
	Taken     bool  // it may be gone with its queue
}

// Failures counts the failed attempts. A 425 is one when the retries are used up.
func (m *Message) Failures(maxRetries int) int {
	n := 0
	for i := range m.Receipts {
		if k := m.Receipts[i].Kind; k == Failed || k == NotYet && maxRetries > 0 && n >= maxRetries {
			n++
		}
	}
	return n
}
