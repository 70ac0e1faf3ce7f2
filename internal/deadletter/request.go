package deadletter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// The values of an operation are described once, for all who ask for one: the tag json names a member of a request over
// HTTP, and with "-" for "_" a flag of the command line, whose help is in Help.

// Selection says which messages an action is for.
type Selection struct {
	Filter Filter `json:"filter,omitzero"`
	All    bool   `json:"all,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

// Redrive says how messages go back into the flow.
type Redrive struct {
	Selection
	DryRun bool   `json:"dry_run,omitempty"`
	Reset  bool   `json:"reset,omitempty"`
	Rate   Rate   `json:"rate,omitempty"`
	Canary int    `json:"canary,omitempty"`
	To     Target `json:"to,omitempty"`
	Plain  bool   `json:"plain,omitempty"`

	CanaryTimeout time.Duration `json:"-"` // 0 = one minute. The command line has a flag of its own for it
}

// Discard says which messages are deleted.
type Discard struct {
	Selection
	DryRun  bool   `json:"dry_run,omitempty"`
	Confirm string `json:"confirm,omitempty"` // the queue's name, over HTTP
}

// Help says what the values mean; the word in backquotes stands for the value.
var Help = map[string]string{
	"all":     "every message of this service",
	"limit":   "at most `N` messages; 0 = all that match (default 0)",
	"dry-run": "count what would be done, change nothing",
	"reset":   "full fresh attempts. Without it the count goes on: one try, then parked again",
	"rate":    "at most `RATE` messages per second, minute or hour: 20/s, 100/m",
	"canary":  "send `N` first and wait for their verdicts; go on only when all were acked",
	"to":      "move them to another existing `QUEUE` instead, each as if never tried",
	"plain":   "with --to: without any header x-original-* and x-redriven-*",
}

// maxLimit bounds the limit of an action.
const maxLimit = 1_000_000

// Check returns ErrInvalid, with the reason, for a selection that people did not mean: everything must be asked for.
func (s *Selection) Check() error {
	switch {
	case s.Limit < 0 || s.Limit > maxLimit:
		return fmt.Errorf("%w: limit must be an integer from 0 to %d", ErrInvalid, maxLimit)
	case s.All && !s.Filter.Empty():
		return fmt.Errorf("%w: --all (over HTTP \"all\") and a condition contradict each other", ErrInvalid)
	case !s.All && s.Filter.Empty():
		return fmt.Errorf("%w: say which messages: by id, by conditions, or with --all (over HTTP \"all\": true)", ErrInvalid)
	}
	return nil
}

// Check returns ErrInvalid, with the reason, for options that make no sense for the queue.
func (q *Queue) Check(r *Redrive) error {
	switch {
	case r.Canary < 0 || r.Canary > message.MaxCanary:
		return fmt.Errorf("%w: canary %d is not between 0 and %d", ErrInvalid, r.Canary, message.MaxCanary)
	case r.Plain && r.To == "":
		return fmt.Errorf("%w: plain can only be set together with to, the queue to move messages to", ErrInvalid)
	case r.To != "":
		if problem := q.targetProblem(r); problem != "" {
			return fmt.Errorf("%w: to %.100q %s", ErrInvalid, r.To, problem)
		}
	}
	return nil
}

// targetProblem returns why messages cannot be moved to the queue r.To, or "".
func (q *Queue) targetProblem(r *Redrive) string {
	to := string(r.To)
	own := to == q.name || to == q.lockName() || strings.HasPrefix(to, message.DirectReply)
	for _, o := range q.Owners {
		own = own || slices.ContainsFunc(o.Plan.Queues, func(known topology.Queue) bool { return known.Name == to })
	}
	switch {
	case r.Canary > 0:
		return "cannot be combined with canary: only this service sends verdicts"
	case len(to) > amqpvalue.ShortMax:
		return fmt.Sprintf("is too long: the name of a queue has at most %d bytes", amqpvalue.ShortMax)
	case own:
		return "is a queue that this service or the broker uses itself: want a queue of another service, or one to inspect " +
			"messages in"
	}
	return ""
}

// Target is the name of a queue that messages are moved to.
type Target string

// UnmarshalText refuses an empty name: it could be taken for the service's own queue.
func (t *Target) UnmarshalText(b []byte) error {
	if *t = Target(b); *t == "" {
		return errors.New("to must not be empty")
	}
	return nil
}

// Rate is how many messages go in a time at the most: "20/s", "100/m", "50/h" or "20", which is per second; "" is any
// number.
type Rate string

// minRate is one message an hour.
const minRate = 1.0 / 3600

// UnmarshalText refuses anything else.
func (r *Rate) UnmarshalText(b []byte) error {
	*r = Rate(b)
	if p := r.perSecond(); !(p >= minRate) || math.IsInf(p, 0) || strings.HasSuffix(string(b), "/") {
		return fmt.Errorf("rate %.40q: want messages per second, minute or hour, such as 20/s or 100/m", b)
	}
	return nil
}

// perSecond returns 0 for what is not a rate.
func (r Rate) perSecond() float64 {
	text, unit, _ := strings.Cut(string(r), "/")
	per, ok := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !ok {
		return 0
	}
	return n / per
}
