package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Source is where messages come from. Each numbers its own from 0; what travels and what the ledgers hold is the number
// of the run, see Seq.
type Source int

// The sources.
const (
	AMQP   Source = iota // a publisher at the broker
	HTTP                 // a client of the sidecar's publish listener
	Outbox               // rows that a sidecar relays
	Sources
)

func (s Source) String() string { return [...]string{"amqp", "http", "outbox"}[s] }

// each is how many messages a source may have.
const each = 100_000_000

// Seq is the number of message n of a source in the run.
func (s Source) Seq(n int) int { return int(s)*each + n }

// SourceOf is the source of message seq of the run, and its number there.
func SourceOf(seq int) (s Source, n int) { return Source(seq / each), seq % each }

// ID is the message id of a message. An outbox has UUIDs.
func ID(run string, seq int) string {
	if s, n := SourceOf(seq); s == Outbox {
		return fmt.Sprintf("%s-0000-4000-8000-%012x", Sum([]byte(run))[:8], n)
	}
	return fmt.Sprintf("%s-%d", run, seq)
}

// SeqOf is the number in a message id, -1 when it is none of ours.
func SeqOf(id string) int {
	last := id[strings.LastIndexByte(id, '-')+1:]
	if len(id) == len("00000000-0000-4000-8000-000000000000") && strings.Count(id, "-") == 4 {
		n, err := strconv.ParseInt(last, 16, 64)
		if err != nil || n < 0 || n >= each {
			return -1
		}
		return Outbox.Seq(int(n))
	}
	n, err := strconv.Atoi(last)
	if err != nil || n < 0 || n >= each*int(Outbox) {
		return -1
	}
	return n
}
