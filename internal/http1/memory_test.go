package http1

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/budget"
)

// allocated is what f allocates in bytes, if nothing runs beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// readWithin reads an answer with a budget of limit bytes, and checks what that costs. Its body lasts until the next
// read.
func readWithin(t *testing.T, raw []byte, step, limit int, use Use) (Answer, error) {
	t.Helper()
	memory := budget.New(int64(limit)).Account(budget.Answers)
	x := NewExchange(content{use})
	x.Begin(memory, time.Time{})
	a := &x.Answer
	var err error
	cost := allocated(func() { err = a.Read(&trickle{raw, step}, x.Header) })
	bound := uint64(32 * smallAnswer) // all that was ever allocated, which is more than is held at a time
	if a.in.large {
		bound = 4 * largeAnswer
	}
	if cost > bound || memory.Held() > int64(limit) || (memory.Held() > 0) != a.in.large {
		t.Fatalf("%d bytes cost %d, the bound is %d; large %v, %d held", len(raw), cost, bound, a.in.large, memory.Held())
	}
	x.End()
	if memory.Held() != 0 {
		t.Fatalf("%d bytes were not given back", memory.Held())
	}
	return *a, err
}

func TestAnswersWithoutMemory(t *testing.T) { //nolint:paralleltest // measures what is allocated
	small, large := strings.Repeat("p", 13), strings.Repeat("p", 5000)
	answer := func(body string) string {
		return "HTTP/1.1 200 X\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	long := "HTTP/1.1 200 X\r\nX: " + strings.Repeat("x", 5000) + "\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct {
		raw  string
		use  Use
		free int
		err  error
		kept int
	}{
		"small, kept":              {answer(small), Keep, 1, nil, len(small)},
		"large, kept":              {answer(large), Keep, largeAnswer, nil, len(large)},
		"large, kept, no memory":   {answer(large), Keep, 1, nil, smallAnswer},
		"large, its beginning":     {answer(large), Begin, largeAnswer, nil, smallAnswer},
		"beginning, no memory":     {answer(large), Begin, 1, nil, smallAnswer},
		"small, its beginning":     {answer(small), Begin, 1, nil, len(small)},
		"a large head":             {long, Skip, largeAnswer, nil, 0},
		"a large head, no memory":  {long, Skip, 1, errNoMemory, 0},
		"small, needed":            {answer(small), Need, 1, nil, len(small)},
		"large, needed":            {answer(large), Need, largeAnswer, nil, len(large)},
		"large, needed, no memory": {answer(large), Need, 1, errNoMemory, smallAnswer},
		"large, of no use":         {answer(large), Skip, 1, nil, 0},
	} {
		a, err := readWithin(t, []byte(c.raw), 1000, c.free, c.use)
		if !errors.Is(err, c.err) || a.Status != 200 && c.err == nil || len(a.Body) > c.kept || err == nil && len(a.Body) != c.kept {
			t.Errorf("%s: %v, status %d, %d bytes", name, err, a.Status, len(a.Body))
		}
	}
}

// TestAnswersWaitForMemory: a status is not lost because its headers are long and memory is short for a moment.
func TestAnswersWaitForMemory(t *testing.T) {
	t.Parallel()
	b := budget.New(largeAnswer)
	others := b.Account(budget.Deliveries)
	others.Take(largeAnswer)
	x := NewExchange(content{Skip})
	x.Begin(b.Account(budget.Answers), time.Now().Add(time.Minute))
	read := make(chan error)
	raw := "HTTP/1.1 200 X\r\nX: " + strings.Repeat("x", 5000) + "\r\nContent-Length: 0\r\n\r\n"
	go func() { read <- x.Answer.Read(&trickle{[]byte(raw), 1000}, x.Header) }()
	others.Give(largeAnswer)
	if err := <-read; err != nil {
		t.Error(err)
	}
	x.End()
}
