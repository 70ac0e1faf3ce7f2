package dispatch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/budget"
	"sidecar/internal/message"
)

func wantRequest(t *testing.T, r *apptest.Request, lines ...string) {
	t.Helper()
	if want := strings.Join(lines, "\r\n"); string(r.Raw) != want {
		t.Errorf("got\n%s\nwant\n%s", r.Raw, want)
	}
}

// TestTokenIsAskedForEveryRequest: one that cannot be in a header is left out.
func TestTokenIsAskedForEveryRequest(t *testing.T) {
	t.Parallel()
	var token string
	s, target := listen(t, 204, func(o *Options) { o.Token = func() string { return token } })
	for i, want := range []string{"one", "two", "", "", "", ""} {
		token = []string{"one", "two", "a\r\nX: y", "a b", "ü", ""}[i]
		dispatch(t, target, sample())
		if got := s.Requests()[i].Header.Get("Authorization"); strings.TrimPrefix(got, "Bearer ") != want || (got == "") != (want == "") {
			t.Errorf("token %q: sent %q", token, got)
		}
	}
}

// needed is what a request of ms and its answer take of the memory, in a buffer of its own.
func needed(ms []*message.Message) int64 {
	sum, slack := 4*answerLimit(len(ms)), 0
	for _, m := range ms {
		usual, most := room(m)
		sum, slack = sum+int64(usual), max(slack, most-usual)
	}
	return sum + int64(slack)
}

// holding is an app's target in batches of lines that takes this memory, which it has to give back by the end of the test.
func holding(t *testing.T, url string, memory *budget.Account, changes ...func(*Options)) *Target {
	t.Helper()
	t.Cleanup(func() {
		if n := memory.Held(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
	return newTarget(t, url, append(changes, inBatches("jsonl"), func(o *Options) { o.Memory = memory })...)
}

// A batch takes its memory once, and gives it back whatever comes of it.
func TestMemoryOfABatch(t *testing.T) {
	t.Parallel()
	b := budget.New(64 << 20)
	answers := b.Account(budget.Answers)
	held := make(chan int64, 10)
	s := apptest.Listen(t, func(c *apptest.Conn) {
		for i := range 3 {
			if _, err := c.Next(); err != nil || i == 2 {
				return
			}
			held <- answers.Held()
			c.Send(apptest.Full(207, `{"index":0,"status":500}`))
		}
	})
	target := holding(t, s.URL, answers)
	ms := samples(2)
	ms[0].Body = make([]byte, 3*keptBody) // not a buffer that is kept
	for range 2 {
		if whole, each := dispatchAll(t, target, ms...); len(each) != 2 || each[0].Status != 500 {
			t.Fatalf("%+v", whole)
		}
		if n := <-held; n != needed(ms) {
			t.Errorf("%d bytes were held, want %d", n, needed(ms))
		}
	}
	whole, _ := dispatchAll(t, target, samples(1)...)
	wantFailure(t, whole, message.FailureReset, "closed")
}

// A POST needs nothing that others may have taken once it has its memory: neither for a long answer, nor after its
// messages have turned out larger than usual.
func TestMemoryOfABatchIsTakenOnce(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Full(207, strings.Repeat("\n", 60<<10)+`{"index":1,"status":500}`)))
	ms := samples(100)
	for _, m := range ms {
		long := strings.Repeat("\x01", 255)
		m.Type, m.AppID, m.UserID, m.ReplyTo, m.CorrelationID = long, long, long, long, long
		m.Body = make([]byte, keptBody/100) // not a buffer that is kept
	}
	most := 4 * answerLimit(100)
	for _, m := range ms {
		_, n := room(m)
		most += int64(n)
	}
	target := holding(t, s.URL, budget.New(2*most).Account(budget.Answers))
	for range 2 {
		if whole, each := dispatchAll(t, target, ms...); len(each) != 100 || each[1].Status != 500 {
			t.Errorf("%+v", whole)
		}
	}
	// Enough for a usual size, which turns out too small.
	whole, _ := dispatchAll(t, holding(t, s.URL, budget.New(most-1).Account(budget.Answers)), ms...)
	wantFailure(t, whole, message.FailureTooLarge, "memory")
}

// Without memory a batch of several has failed as a whole. A message alone is released, which neither counts nor parks
// it; only one that never fits is too large.
func TestBatchWithoutMemory(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204)))
	b := budget.New(4 << 20)
	others, answers := b.Account(budget.Deliveries), b.Account(budget.Answers)
	others.Take(4 << 20)
	var log apptest.Log
	target := holding(t, s.URL, answers, timeout(30*time.Millisecond), func(o *Options) { o.Logger = log.Logger() })
	whole, each := dispatchAll(t, target, samples(2)...)
	if wantFailed(t, whole, each, message.FailureTooLarge, "with the messages (2)"); len(log.Lines()) != 0 {
		t.Error(log.String())
	}
	whole, _ = dispatchAll(t, target, samples(1)...)
	if whole.Failure != message.FailureUndispatched || len(log.Lines("no memory for a request", "message_id=m-0")) != 1 {
		t.Errorf("%+v, log %s", whole, log.String())
	}
	whole, _ = dispatchAll(t, target, sized(2<<20))
	wantFailure(t, whole, message.FailureTooLarge, "bytes, and SIDECAR_MEMORY is 4194304")

	ctx, stop := context.WithCancelCause(t.Context())
	waits := holding(t, s.URL, answers)
	time.AfterFunc(30*time.Millisecond, func() { stop(errors.New("drain")) })
	whole, _ = waits.DispatchBatch(ctx, samples(1), message.TraceContext{})
	wantFailure(t, whole, message.FailureInterrupted, "drain")
	wantSeen(t, s, 0, 0)
	time.AfterFunc(30*time.Millisecond, func() { others.Give(4 << 20) })
	if whole, each = dispatchAll(t, waits, samples(2)...); len(each) != 2 {
		t.Errorf("%+v", whole)
	}
}
