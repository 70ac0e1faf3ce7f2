package dispatch

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"sidecar/internal/budget"
	"sidecar/internal/message"
)

// allocated is what f allocates in bytes, if nothing runs beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// readWithin reads an answer as Dispatch does, with a budget of limit bytes, and checks what that costs.
func readWithin(t *testing.T, raw []byte, step, limit int, dapr bool) (o message.Outcome, err error) {
	t.Helper()
	memory := budget.New(int64(limit)).Account(budget.Answers)
	x := newAttempt(memory)
	a := &x.answer
	a.dapr = dapr
	cost := allocated(func() {
		if err = a.read(&trickle{raw, step}); err == nil {
			a.report(&o, time.Minute)
		}
	})
	bound := uint64(32 * smallAnswer) // all that was ever allocated, which is more than is held at a time
	if a.in.large {
		bound = 4 * largeAnswer
	}
	if cost > bound || memory.Held() > int64(limit) || (memory.Held() > 0) != a.in.large {
		t.Fatalf("%d bytes cost %d, the bound is %d; large %v, %d held", len(raw), cost, bound, a.in.large, memory.Held())
	}
	x.release()
	if memory.Held() != 0 {
		t.Fatalf("%d bytes were not given back", memory.Held())
	}
	return o, err
}

func TestAnswersWithoutMemory(t *testing.T) { //nolint:paralleltest // measures what is allocated
	problem := "HTTP/1.1 422 X\r\nContent-Type: application/problem+json\r\nContent-Length: "
	small, large := `{"title":"T"}`, `{"title":"T","pad":"`+strings.Repeat("p", 5000)+`"}`
	dapr := func(body string) string {
		return "HTTP/1.1 200 X\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body
	}
	long := "HTTP/1.1 200 X\r\nX: " + strings.Repeat("x", 5000) + "\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct {
		raw   string
		free  int
		err   error
		title string
	}{
		"a small problem":                   {problem + itoa(len(small)) + "\r\n\r\n" + small, 1, nil, "T"},
		"a large problem":                   {problem + itoa(len(large)) + "\r\n\r\n" + large, largeAnswer, nil, "T"},
		"a large problem, no memory":        {problem + itoa(len(large)) + "\r\n\r\n" + large, 1, nil, ""},
		"a large head":                      {long, largeAnswer, nil, ""},
		"a large head, no memory":           {long, 1, errNoMemory, ""},
		"dapr, small":                       {dapr(`{"status":"DROP"}`), 1, nil, ""},
		"dapr, large":                       {dapr(`{"status":"DROP"}` + large), largeAnswer, nil, ""},
		"dapr, large, no memory":            {dapr(`{"status":"DROP"}` + large), 1, errNoMemory, ""},
		"not dapr, a large body, no memory": {"HTTP/1.1 500 X\r\nContent-Length: 5033\r\n\r\n" + strings.Repeat("x", 5033), 1, nil, ""},
	} {
		o, err := readWithin(t, []byte(c.raw), 1000, c.free, strings.HasPrefix(name, "dapr"))
		if !errors.Is(err, c.err) || (err == nil) != (o.Status > 0) {
			t.Errorf("%s: %v, status %d", name, err, o.Status)
		}
		if strings.HasPrefix(name, "dapr") && err == nil && o.Disposition != message.DispositionPark {
			t.Errorf("%s: %v", name, o.Disposition)
		}
		title := ""
		if o.Problem != nil {
			title = o.Problem.Title
		}
		if title != c.title {
			t.Errorf("%s: title %q, want %q", name, title, c.title)
		}
	}
}

// TestAnswersWaitForMemory: a status is not lost because its headers are long and memory is short for a moment.
func TestAnswersWaitForMemory(t *testing.T) {
	t.Parallel()
	b := budget.New(largeAnswer)
	others := b.Account(budget.Deliveries)
	others.Take(largeAnswer)
	x := newAttempt(b.Account(budget.Answers))
	x.answer.in.deadline = time.Now().Add(time.Minute)
	read := make(chan error)
	go func() {
		read <- x.answer.read(&trickle{[]byte("HTTP/1.1 200 X\r\nX: " + strings.Repeat("x", 5000) + "\r\nContent-Length: 0\r\n\r\n"), 1000})
	}()
	others.Give(largeAnswer)
	if err := <-read; err != nil {
		t.Error(err)
	}
	x.release()
}
