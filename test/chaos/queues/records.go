// Package queues is the storm over several queues of one sidecar: its messages, its app, its publisher and its judge.
// Each queue has a path of the app, and messages of many keys. Faults concern one queue or all of them; the judge reads
// the ledgers when everything has ended.
package queues

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sidecar/test/chaos/ledger"
)

// Run holds the settings of one run.
type Run struct {
	ID         string        `json:"id"`
	Seed       uint64        `json:"seed"`
	Names      []string      `json:"names"`  // of the subscriptions, which are the paths of the app; one empty name: unnamed
	Queues     []string      `json:"queues"` // of the broker, by subscription
	Keys       int           `json:"keys"`   // of each queue
	Prefetch   int           `json:"prefetch"`
	Ordered    int           `json:"ordered"` // the first queues, by key
	MaxRetries int           `json:"max_retries"`
	RetryDelay time.Duration `json:"retry_delay_ns"`
	AppTimeout time.Duration `json:"app_timeout_ns"`
	Within     time.Duration `json:"within_ns"` // a message has to arrive without a fault of its own queue
	Replay     string        `json:"replay"`
}

// Name is the place of a message: message N of a key of a queue, in the order in which they are published.
type Name struct{ Queue, Key, N int }

// id is the message id.
func (n Name) id(run string) string { return fmt.Sprintf("%s-%d-%d-%d", run, n.Queue, n.Key, n.N) }

// nameOf reads a message id of a run.
func nameOf(run, id string) (n Name, ok bool) {
	parts := strings.Split(id, "-")
	if len(parts) != 4 || parts[0] != run {
		return n, false
	}
	for i, to := range []*int{&n.Queue, &n.Key, &n.N} {
		var err error
		if *to, err = strconv.Atoi(parts[i+1]); err != nil {
			return n, false
		}
	}
	return n, true
}

// Sent is one message that was published.
type Sent struct {
	ID     string        `json:"i"`
	At     int64         `json:"t"`
	Done   int64         `json:"d"`
	Result ledger.Result `json:"r"`
}

// Receipt is one request as the app saw it: a line when it arrived, and with the same Call one when it was answered.
type Receipt struct {
	Call    string `json:"c"`
	ID      string `json:"i,omitempty"`
	Path    string `json:"p,omitempty"`
	Attempt int    `json:"a,omitempty"`
	Count   int    `json:"n,omitempty"`
	At      int64  `json:"t"`
	Begun   int64  `json:"b,omitempty"` // when the answer began to be written
	Status  int    `json:"s,omitempty"` // as in ledger.Receipt
	Error   string `json:"e,omitempty"` // of writing the answer
}

// Fault is one that happened.
type Fault struct {
	ID     int    `json:"id"`
	Kind   string `json:"kind"`
	Queue  int    `json:"queue"` // -1: it concerns all
	Start  int64  `json:"start"`
	End    int64  `json:"end"`
	Purged int    `json:"purged,omitempty"` // messages
	Error  string `json:"error,omitempty"`
	// Recovered is when every queue had a receipt after the end; 0: one had none.
	Recovered int64 `json:"recovered,omitempty"`
}

// The kinds of faults that the judge distinguishes.
const (
	BrokerKilled = "broker-kill"
	SidecarEnded = "sidecar-term" // excuses no repeat: a stop finishes what it has begun
	QueueDeleted = "queue-delete"
	Redeclared   = "queue-redeclare"
	Purged       = "queue-purge"
)

// Mode is what a path of the app does with every request.
type Mode string

// The modes.
const (
	Works Mode = "works" // as the plan of each message says
	Fails Mode = "fails"
	Hangs Mode = "hangs"
)

// answer of the app: a status, or one of ledger.Aborted and ledger.Hung.
type answer struct {
	status int
	after  time.Duration
}

// plan of a message: the answers to its attempts, of which the last one repeats.
func plan(seed uint64, n Name) []answer {
	rng := rand.New(rand.NewPCG(seed^uint64(n.Queue)<<32, uint64(n.Key)<<32|uint64(n.N)))
	good := answer{status: http.StatusOK, after: time.Duration(rng.IntN(3)) * time.Millisecond}
	if rng.IntN(50) == 0 {
		good.after = 30 * time.Millisecond
	}
	status := []int{409, 500, 503, 404}[rng.IntN(4)]
	switch draw := rng.IntN(1000); {
	case draw < 2:
		return []answer{{status: status}}
	case draw < 30:
		return []answer{{status: status}, good}
	case draw < 35:
		return []answer{{status: status}, {status: status}, good}
	case draw < 45:
		return []answer{{status: http.StatusTooEarly}, good}
	case draw < 48:
		return []answer{{status: ledger.Aborted}, good}
	}
	return []answer{good}
}

// body of a message.
func body(n Name) []byte {
	b, _ := json.Marshal(n)
	return b
}

// KeyHeader is the header with the key of a message.
const KeyHeader = "key"
