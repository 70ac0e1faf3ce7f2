package consume

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sidecar/internal/message"
)

// TestCollector: what is due, and when, after some messages.
func TestCollector(t *testing.T) {
	t.Parallel()
	type in struct {
		url   string
		size  int
		alone bool
	}
	for name, test := range map[string]struct {
		in    []in
		after time.Duration // since the first one
		due   []string      // the URL and the sizes of each, in their order
		wait  time.Duration // until one of the rest is due
		rest  int           // batches
	}{
		"nothing":             {},
		"waits":               {in: []in{{"a", 1, false}}, wait: 20, rest: 1},
		"waited":              {in: []in{{"a", 1, false}}, after: 20, due: []string{"a[1]"}},
		"waits on":            {in: []in{{"a", 1, false}}, after: 15, wait: 5, rest: 1},
		"full":                {in: []in{{"a", 1, false}, {"a", 2, false}, {"a", 3, false}}, due: []string{"a[1 2 3]"}},
		"one left":            {in: []in{{"a", 1, false}, {"a", 2, false}, {"a", 3, false}, {"a", 4, false}}, due: []string{"a[1 2 3]"}, wait: 20, rest: 1},
		"by URL":              {in: []in{{"a", 1, false}, {"b", 2, false}, {"a", 3, false}, {"b", 4, false}}, after: 20, due: []string{"a[1 3]", "b[2 4]"}},
		"alone":               {in: []in{{"a", 1, false}, {"a", 2, true}, {"a", 3, false}}, due: []string{"a[2]"}, wait: 20, rest: 1},
		"too many bytes":      {in: []in{{"a", 60, false}, {"a", 41, false}}, due: []string{"a[60]"}, wait: 20, rest: 1},
		"all the bytes":       {in: []in{{"a", 60, false}, {"a", 40, false}}, wait: 20, rest: 1},
		"larger than a batch": {in: []in{{"a", 1, false}, {"a", 101, false}}, due: []string{"a[101]"}, wait: 20, rest: 1},
		"as large as a batch": {in: []in{{"a", 100, false}}, wait: 20, rest: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(Batch{Size: 3, Bytes: 100, Wait: 20})
			start := time.Now()
			for _, m := range test.in {
				c.add(&record{m: message.Message{MessageID: m.url, Body: make([]byte, m.size)}}, m.url, m.alone, start)
			}
			var due []string
			now := start.Add(test.after)
			b, wait := c.due(now)
			for ; b != nil; b, wait = c.due(now) {
				var sizes []int
				for i := range b.records {
					sizes = append(sizes, len(b.records[i].m.Body))
				}
				due = append(due, fmt.Sprint(b.records[0].m.MessageID, sizes))
				c.take(b)
			}
			slices.Sort(due) // two that are equally old come in any order
			if !slices.Equal(due, test.due) {
				t.Errorf("due: %v, want %v", due, test.due)
			}
			if rest := c.rest(); len(rest) != test.rest || wait != test.wait {
				t.Errorf("%d left, due in %d; want %d in %d", len(rest), wait, test.rest, test.wait)
			}
			if b, _ := c.due(start.Add(time.Hour)); b != nil {
				t.Error("a batch is left behind the rest")
			}
		})
	}
}

// TestCollectorGrows: a batch that is due and was not taken takes more messages, and is taken once.
func TestCollectorGrows(t *testing.T) {
	t.Parallel()
	c, start := newCollector(Batch{Size: 3, Bytes: 100, Wait: 20}), time.Now()
	add := func() { c.add(&record{}, "a", false, start) }
	add()
	b, _ := c.due(start.Add(20))
	add()
	if again, _ := c.due(start.Add(21)); again != b || len(b.records) != 2 {
		t.Fatalf("%d messages, want the same batch with 2", len(b.records))
	}
	c.take(b)
	add()
	if next, wait := c.due(start.Add(1)); next != nil || wait != 19 {
		t.Errorf("due: %v, in %d; want none, in 19", next, wait)
	}
}

// TestCollectorIsFair: messages that go alone, however many they are, do not hold back a batch that is overdue.
func TestCollectorIsFair(t *testing.T) {
	t.Parallel()
	c, start := newCollector(Batch{Size: 3, Bytes: 100, Wait: 20}), time.Now()
	c.add(&record{m: message.Message{MessageID: "open"}}, "a", false, start)
	c.add(&record{m: message.Message{MessageID: "alone"}}, "a", true, start.Add(1))
	for after, want := range map[time.Duration]string{19: "alone", 20: "open"} {
		if b, wait := c.due(start.Add(after)); b == nil || b.records[0].m.MessageID != want || wait != 0 {
			t.Errorf("after %d: %v, in %d; want %s", after, b, wait, want)
		}
	}
}

// TestAloneTakesNoPooledMemory: a run of failed batches has thousands of messages alone at a time. Memory for many
// messages for each of them would be held, and would fill the pool.
func TestAloneTakesNoPooledMemory(t *testing.T) {
	t.Parallel()
	c := newCollector(Batch{Size: 100, Bytes: 100})
	for range 10 {
		c.add(&record{}, "a", true, time.Now())
	}
	for _, b := range c.rest() {
		if got := cap(b.records); got != 1 {
			t.Errorf("memory for %d messages", got)
		}
		if b.recycle(); len(b.records) != 1 {
			t.Error("a batch of one went into the pool")
		}
	}
}
