package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// at is a time of the histories below, in milliseconds.
func at(ms int64) int64 { return int64(time.Hour) + ms*int64(time.Millisecond) }

// history makes messages from the attempts of one key: "0+" is an accepted attempt of message 0, "0-" a failed one. Each
// takes 10 ms and begins 100 ms after the one before.
func history(n int, attempts string) []*Message {
	sent := make([]*Message, n)
	for i := range sent {
		sent[i] = &Message{Name: fmt.Sprintf("message %d", i), Confirmed: true}
	}
	for i, word := range strings.Fields(attempts) {
		from := at(int64(100 * i))
		r := Receipt{At: from, Begun: from + 8e6, Done: from + 10e6, Kind: Accepted, Status: 200}
		if word[1] == '-' {
			r.Kind, r.Status = Failed, 500
		}
		m := sent[word[0]-'0']
		m.Receipts = append(m.Receipts, r)
	}
	return sent
}

// TestByKey: orders of attempts that a key may not have. Those that it may have happen in the storms
// `order` and `queues`, and must not be reported there.
func TestByKey(t *testing.T) {
	t.Parallel()
	cut := []Fault{{Start: at(250), End: at(260)}}
	for _, c := range []struct {
		name, attempts string
		faults         []Fault
		change         func([]*Message)
		want           string // a part of the only violation; empty: there is none
	}{
		{name: "in order", attempts: "0+ 1+ 2+ 3+"},
		{name: "not accepted, and overtaken", attempts: "0+ 1- 2+ 3+", want: "message 2 overtook message 1, which had got 500"},
		{name: "first attempts out of order", attempts: "1+ 0+ 2+ 3+", want: "message 1 came before message 0",
			faults: []Fault{{Start: at(90), End: at(100)}}},
		{name: "a retry after the next message", attempts: "0+ 1- 2+ 1+ 3+", want: "message 2 overtook message 1"},
		{name: "again without a fault", attempts: "0+ 1+ 1+ 2+ 3+", want: "went back from message 1 to message 1"},
		{name: "back without a fault", attempts: "0+ 1+ 2+ 1+ 2+ 3+", want: "went back from message 2 to message 1"},
		{name: "back between two attempts", attempts: "0+ 1- 0+ 1+ 2+ 3+", want: "went back from message 1 to message 0"},
		{name: "back after a cut, with a gap", attempts: "0+ 1- 0+ 2+ 3+", faults: []Fault{{Start: at(110), End: at(160)}},
			want: "the key went back, but message 1 was left out before message 2"},
		{name: "back long after the ack", attempts: "0+ 1+ 2+ 0+ 1+ 2+ 3+", want: "went back from message 2 to message 0",
			faults: []Fault{{Start: at(250), End: at(260)}}, change: earlier(0)},
		{name: "back before the fault", attempts: "0+ 1+ 0+ 1+ 2+ 3+", faults: cut, want: "went back from message 1 to message 0"},
		{name: "two at once", attempts: "0+ 1+ 2+ 3+", change: long(1), want: "message 2 was attempted while message 1 was under way"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sent := history(4, c.attempts)
			if c.change != nil {
				c.change(sent)
			}
			judged(t, c.want, func(j *Judge) { j.ByKey(sent, c.faults) })
		})
	}
}

// TestUnnoticed: what trouble of another subscription must not cause.
func TestUnnoticed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func([]*Message)
		want   string
	}{
		{name: "nothing"},
		{name: "delivered again", change: again, want: "message 0 was delivered again 90ms after it had ended"},
		{name: "parked", change: park(0), want: "message 0 was parked"},
		{name: "late", change: earlier(1), want: "message 1 waited for 5.05s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sent := history(2, "0+ 1+")
			for i, m := range sent {
				m.Since = at(int64(100*i)) - 5e7
			}
			if c.change != nil {
				c.change(sent)
			}
			judged(t, c.want, func(j *Judge) { j.Unnoticed(sent, nil, time.Second, nil) })
		})
	}
}

func judged(t *testing.T, want string, judge func(*Judge)) {
	t.Helper()
	var found []string
	judge(&Judge{Violated: func(_, format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }})
	if want == "" && len(found) > 0 || want != "" && (len(found) == 0 || !strings.Contains(found[0], want)) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func park(i int) func([]*Message) {
	return func(sent []*Message) { sent[i].Parked = []*Parked{{}} }
}

// earlier moves the first attempt of a message, or its publication, five seconds back.
func earlier(i int) func([]*Message) {
	return func(sent []*Message) {
		sent[i].Since -= 5e9
		if r := &sent[i].Receipts[0]; i == 0 {
			r.At, r.Begun, r.Done = r.At-5e9, r.Begun-5e9, r.Done-5e9
		}
	}
}

// long makes the first attempt of a message take until the next but one begins.
func long(i int) func([]*Message) {
	return func(sent []*Message) {
		r := &sent[i].Receipts[0]
		r.Begun, r.Done = r.At+15e7, r.At+15e7
	}
}

func again(sent []*Message) {
	sent[0].Receipts = append(sent[0].Receipts, sent[1].Receipts[0])
}
