// Package deadletter reads a dead-letter queue and acts on its messages: list, group, show, redrive, discard, export,
// import. It speaks AMQP and nothing else: no management API, no plugin, no database.
//
// Every operation takes messages unacked on a session of its own, decides, and requeues the messages that it has not
// moved or discarded in a way that keeps their places. A moved message is published, mandatory and confirmed, and acked
// after that: a crash at any point leaves it in its old place, in its new place, or in both. An operation is bounded by
// the number of messages at its start, so it ends also when every moved message returns.
//
// Two operations at a time on one queue would hide messages from each other. They exclude each other by an exclusive
// queue, and other consumers by checking the queue's consumer count.
package deadletter

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/broker"
	"sidecar/internal/message"
)

// What can be wrong with an operation, beside the errors of package broker. Test with errors.Is; the text says more.
var (
	// ErrNoQueue: the topology has no dead-letter queue.
	ErrNoQueue = errors.New("this topology has no dead-letter queue")
	// ErrNoSubscription: no subscription that parks has the name.
	ErrNoSubscription = errors.New("no subscription")
	// ErrMissing: the dead-letter queue does not exist in the broker.
	ErrMissing = errors.New("the dead-letter queue does not exist")
	// ErrDown: the node of the broker that keeps the dead-letter queue is down.
	ErrDown = errors.New("the node of the broker that keeps the dead-letter queue is down")
	// ErrInUse: another operation runs on the queue, here or elsewhere, or something else consumes it.
	ErrInUse = errors.New("the dead-letter queue is in use")
	// ErrUnsafe: the queue's arguments, or other consumers, would make even reading lose messages. Nothing has left the
	// queue.
	ErrUnsafe = errors.New("unsafe to read this dead-letter queue")
	// ErrNotFound: no parked message has the id.
	ErrNotFound = errors.New("no such parked message")
	// ErrCanary: a canary message failed again, or had no verdict in time. The rest has not been touched.
	ErrCanary = errors.New("the canary failed")
	// ErrStopped: the operation ended before its end because of a failure that would have met the next message too.
	ErrStopped = errors.New("stopped")
	// ErrUnread: a message is larger than the memory for it, and cannot be kept in a file. It stays in the queue.
	ErrUnread = errors.New("the message was not read")
	// ErrInvalid: a filter, an option or a line of an import makes no sense. The text names it.
	ErrInvalid = errors.New("invalid")
)

// Options say how to reach the queues.
type Options struct {
	Broker broker.Options // Name gets the operation's name appended; nothing is registered for these connections
	By     string         // who acts: goes into x-redriven-by

	Logger     *slog.Logger          // nil = silent
	Registerer prometheus.Registerer // takes sidecar_redriven_total; nil = none
}

// Queue is the dead-letter queue of one service, of one subscription or of several. Its methods are safe for concurrent
// use; each opens connections of its own and closes them.
type Queue struct {
	Owners []Owner // read only; at least one

	o       Options
	name    string
	narrow  bool // it has only the messages of its owner
	several bool // several subscriptions park in it, also where Owners has one of them
	dialer  *broker.Dialer
	metrics *metrics
	hold    time.Duration
	pause   time.Duration // between two attempts to claim the queue, varied at random
}

// callPatience is how long the broker may take to answer: a classic queue that has a million messages taken and given
// back is busy for a while.
const callPatience = time.Minute

// Name is the queue's name in the broker.
func (q *Queue) Name() string { return q.name }

// Scan bounds what is read.
type Scan struct {
	Limit int // matching messages at most; 0 = all
	Depth int // messages to read, from the head of the queue; 0 = all there were at the start
}

// Progress is how far an operation has come. All counts only grow.
type Progress struct {
	Total   int `json:"total"`   // messages at the start; lines are not counted beforehand by an import
	Scanned int `json:"scanned"` // read
	Matched int `json:"matched"` // that the selection chose
	Done    int `json:"done"`    // redriven, discarded, exported or imported
	Failed  int `json:"failed"`  // that could not be moved; they stay where they are
	Skipped int `json:"skipped"` // another service's, in a queue that services share: never touched

	Canary CanaryProgress `json:"canary,omitzero"`
}

// CanaryProgress counts the verdicts on the messages that were sent first.
type CanaryProgress struct {
	Sent int                   `json:"sent"`
	Good int                   `json:"good"` // acked
	Bad  int                   `json:"bad"`  // failed again
	Done bool                  `json:"done"` // all were good: the rest follows
	Last *message.VerdictReply `json:"last,omitempty"`
}

// Report is called with the progress of an operation, a few times per second and at its end. If it blocks, the
// operation goes on and only its end waits.
type Report func(Progress)
