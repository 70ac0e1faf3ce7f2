// Package plan says what the app does with a message: which answers it gives, in which order. A plan travels in the
// message itself, so that an app that was killed can still follow it.
package plan

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Kind of a plan.
type Kind string

// The kinds.
const (
	OK      Kind = "ok"      // 200
	Fail    Kind = "fail"    // K times Status, then 200
	Never   Kind = "never"   // Status for ever
	Early   Kind = "early"   // K times 425, then 200
	Before  Kind = "before"  // the connection is reset before the body is read, then 200
	After   Kind = "after"   // the connection is reset instead of an answer, then 200
	Timeout Kind = "timeout" // no answer at all, then 200
	Large   Kind = "large"   // 200 to a large body
	Hostile Kind = "hostile" // 200 to headers that try to become HTTP headers
	Slow    Kind = "slow"    // 200 after SlowAnswer; never drawn, see publish.Run
	Prompt  Kind = "prompt"  // 503, then 200, when nothing else is to do; never drawn either
)

// LargeBody is the size of a large body in bytes.
const LargeBody = 512 << 10

// SlowAnswer is how long the app takes for a slow message. It is long enough for the sidecar's concurrency to decide
// how many of them are answered in a second, not the machine.
const SlowAnswer = 100 * time.Millisecond

// Plan of one message.
type Plan struct {
	Kind   Kind
	K      int
	Status int
}

// Answer to one receipt: a status, or none.
type Answer struct {
	Status int  // 0: none
	Early  bool // no answer, before the body is read
	Hang   bool // no answer, and the connection stays
	Slow   bool // not before SlowAnswer
}

var (
	failures = []int{500, 502, 503, 409, 404}
	refusals = []int{500, 409, 429, 404, 418, 302, 999}
)

// Of draws the plan of message seq. It depends on nothing but its arguments. most bounds how often a plan fails before
// it succeeds. never is how many more of a hundred messages than usual fail for ever.
func Of(seed uint64, seq, most, never int) Plan {
	r := rand.New(rand.NewPCG(seed, uint64(seq)))
	if r.IntN(100) < never {
		return Plan{Kind: Never, Status: refusals[r.IntN(len(refusals))]}
	}
	switch n := r.IntN(200); {
	case n < 176:
		return Plan{Kind: OK}
	case n < 184:
		return Plan{Kind: Fail, K: 1 + r.IntN(most), Status: failures[r.IntN(len(failures))]}
	case n < 186:
		return Plan{Kind: Never, Status: refusals[r.IntN(len(refusals))]}
	case n < 190:
		return Plan{Kind: Early, K: 1 + r.IntN(2)}
	case n < 192:
		return Plan{Kind: Before}
	case n < 194:
		return Plan{Kind: After}
	case n < 196:
		return Plan{Kind: Timeout}
	case n < 197:
		return Plan{Kind: Large}
	default:
		return Plan{Kind: Hostile}
	}
}

// String is the plan as it travels.
func (p Plan) String() string { return fmt.Sprintf("%s:%d:%d", p.Kind, p.K, p.Status) }

// Parse reads what String wrote.
func Parse(s string) (Plan, error) {
	f := strings.Split(s, ":")
	if len(f) != 3 {
		return Plan{}, fmt.Errorf("plan %q: want kind:k:status", s)
	}
	k, err := strconv.Atoi(f[1])
	if err != nil {
		return Plan{}, fmt.Errorf("plan %q: %w", s, err)
	}
	status, err := strconv.Atoi(f[2])
	if err != nil {
		return Plan{}, fmt.Errorf("plan %q: %w", s, err)
	}
	return Plan{Kind(f[0]), k, status}, nil
}

// Answer is what the app does on receipt n, counted from 1.
func (p Plan) Answer(n int) Answer {
	switch {
	case p.Kind == Never:
		return Answer{Status: p.Status}
	case n > p.Failures()+p.Postponed():
		return Answer{Status: 200, Slow: p.Kind == Slow}
	}
	switch p.Kind {
	case Fail:
		return Answer{Status: p.Status}
	case Prompt:
		return Answer{Status: 503}
	case Early:
		return Answer{Status: 425}
	case Before:
		return Answer{Early: true}
	case After:
		return Answer{}
	case Timeout:
		return Answer{Hang: true}
	}
	return Answer{Status: 200}
}

// Failures is how many receipts count as failed attempts before the plan succeeds, if it ever does.
func (p Plan) Failures() int {
	switch p.Kind {
	case Fail:
		return p.K
	case Before, After, Timeout, Prompt:
		return 1
	}
	return 0
}

// Postponed is how many receipts ask for the message to come again, uncounted.
func (p Plan) Postponed() int {
	if p.Kind == Early {
		return p.K
	}
	return 0
}

// Receipts is how often the app sees the message when nothing goes wrong.
func (p Plan) Receipts(maxRetries int) int {
	if p.Kind == Never {
		return maxRetries + 1
	}
	return p.Failures() + p.Postponed() + 1
}
