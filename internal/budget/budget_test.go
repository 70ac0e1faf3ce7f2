package budget

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestTake(t *testing.T) {
	t.Parallel()
	b := New(100)
	a, other := b.Account(Deliveries), b.Account(Publish)
	for _, c := range []struct {
		of   *Account
		n    int64
		want bool
		why  string
	}{
		{a, 101, false, "more than the whole budget"},
		{a, 30, true, "free"},
		{a, 21, false, "more than half of the budget for one account"},
		{a, 20, true, "half of the budget"},
		{other, 51, false, "more than is left"},
		{other, 50, true, "what is left"},
		{other, 1, false, "nothing is left"},
	} {
		if got := c.of.Take(c.n); got != c.want {
			t.Errorf("%s: Take(%d) = %v", c.why, c.n, got)
		}
	}
	a.Give(50)
	other.Give(50)
	if !a.Take(100) {
		t.Error("a single thing as large as the budget was not taken although nothing was held")
	}
}

func TestWaitIsGrantedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		a, other := b.Account(Deliveries), b.Account(Publish)
		other.Take(50)
		a.Take(10)
		got := make(chan string, 2)
		go func() { a.Wait(45, nil); got <- "blocked by its own account" }()
		synctest.Wait()
		if !other.Take(0) {
			t.Error("a waiter whose own account is in the way kept another account out")
		}
		a.Give(10)
		if first := <-got; a.Held() != 45 {
			t.Errorf("%s: %d bytes held", first, a.Held())
		}
		third := b.Account(Outbox)
		go func() { third.Wait(40, nil); got <- "large" }()
		synctest.Wait()
		if b.Account(Requests).Take(1) {
			t.Error("a small thing overtook one that waits for the budget")
		}
		other.Give(50)
		<-got
		if third.Held() != 40 {
			t.Errorf("%d bytes held", third.Held())
		}
	})
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	b := New(10)
	a := b.Account(Deliveries)
	if a.Wait(11, nil) {
		t.Error("more than the budget was granted")
	}
	a.Take(10)
	stop := make(chan struct{})
	close(stop)
	if a.Wait(5, stop) {
		t.Error("granted although nothing was free")
	}
	a.Give(10)
	if !a.Take(10) || a.Held() != 10 {
		t.Error("a wait that ended left something behind")
	}
}

func TestNilAccountBoundsNothing(t *testing.T) {
	t.Parallel()
	var a *Account
	if !a.Take(1<<40) || !a.Wait(1<<40, nil) || !a.Fits(1<<40) || a.Freed() != nil || a.Limit() <= 0 || a.Held() != 0 {
		t.Error("a nil account refused something")
	}
	a.Give(1 << 40)
}

// TestManyAtOnce: whatever the order, the budget is kept, everything is granted in the end and nothing is left over.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := New(1000)
	var work sync.WaitGroup
	for i := range 60 {
		work.Go(func() {
			a := b.Account(accounts[i%len(accounts)])
			for n := range int64(200) {
				size := 1 + (n*37+int64(i))%700
				if !a.Wait(size, nil) {
					t.Error("not granted")
				}
				b.mu.Lock()
				if b.used > b.limit {
					t.Errorf("%d of %d bytes", b.used, b.limit)
				}
				b.mu.Unlock()
				a.Give(size)
			}
		})
	}
	work.Wait()
	if b.used != 0 || len(b.waiting) != 0 {
		t.Errorf("%d bytes, %d waiters left", b.used, len(b.waiting))
	}
}

// TestShares: what fills a share leaves the others theirs, also beside a waiter; one thing beyond a share is of memory that none
// of the others has a share of.
func TestShares(t *testing.T) {
	t.Parallel()
	b := New(100)
	whole := b.Account(Deliveries)
	shares := whole.Shares(2)
	for _, c := range []struct {
		of   *Account
		n    int64
		want bool
		why  string
	}{
		{shares[0], 76, false, "of the other share"},
		{shares[0], 75, true, "one thing, and the other share is left"},
		{shares[0], 1, false, "a second thing beyond the share"},
		{shares[1], 24, true, "its own share"},
		{shares[1], 2, false, "beyond it, and nothing is left"},
		{shares[1], 1, true, "the rest of its own share"},
	} {
		if fits, got := c.of.Fits(c.n), c.of.Take(c.n); got != c.want || fits != got {
			t.Errorf("%s: Take(%d) = %v, Fits %v", c.why, c.n, got, fits)
		}
	}
	if whole.Held() != 100 || b.used != 100 || shares[0].Limit() != 100 || shares[0].Share() != 25 {
		t.Errorf("%d bytes are held of all, %d used", whole.Held(), b.used)
	}
	shares[0].Give(75)
	stop := make(chan struct{})
	ended := make(chan bool)
	go func() { ended <- b.Account(Outbox).Wait(90, stop) }()
	for b.waiters() == 0 {
		runtime.Gosched()
	}
	if !shares[0].Take(25) || b.Account(Publish).Take(1) {
		t.Error("a waiter of another account has kept a share out, or not kept out another account")
	}
	close(stop)
	if <-ended {
		t.Error("more than was free was granted")
	}
	shares[0].Give(25)
	shares[1].Give(25)
	if b.used != 0 {
		t.Errorf("%d bytes are left", b.used)
	}
}

func (b *Budget) waiters() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// TestAWaiterThatGivesUp: the waiters behind it get what is free for them, and Freed announces it.
func TestAWaiterThatGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		b.Account(Answers).Take(40)
		stop := make(chan struct{})
		granted := make(chan bool, 3)
		wait := func(of string, n int64, stop <-chan struct{}) {
			go func() { granted <- b.Account(of).Wait(n, stop) }()
			synctest.Wait()
		}
		wait(Deliveries, 80, stop)
		wait(Publish, 30, nil)
		wait(Outbox, 20, nil)
		requests := b.Account(Requests)
		freed := requests.Freed()
		if requests.Fits(10) || len(granted) != 0 {
			t.Error("the first waiter does not keep others out")
		}
		close(stop)
		synctest.Wait()
		if first, second, third := <-granted, <-granted, <-granted; first && second && third || b.used != 90 {
			t.Errorf("%v %v %v, %d bytes", first, second, third, b.used)
		}
		select {
		case <-freed:
		default:
			t.Error("it is not announced that memory may be free")
		}
		if !requests.Fits(10) || requests.Fits(11) {
			t.Error("the rest is not what fits")
		}
		freed = requests.Freed()
		granted <- b.Account(Publish).Wait(1, nil)
		select {
		case <-freed:
			t.Error("a waiter that came and took memory is announced as free memory")
		default:
		}
		b.Account(Answers).Give(40)
		<-freed
	})
}

// TestGarbageIsCollected: before something large is made, too much of what was given back is collected; it is too much
// sooner when more is held. A buffer that is kept is no garbage.
func TestGarbageIsCollected(t *testing.T) { //nolint:paralleltest // counts the collections of the process
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	collections := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	b := New(16 * large)
	a, other := b.Account(Answers), b.Account(Publish)
	before := collections()
	for range 10 {
		a.Take(4 * large)
		a.Keep(4 * large)
		a.Take(large - 1)
		a.Give(large - 1)
	}
	if n := collections() - before; n != 0 || b.garbage != 0 {
		t.Errorf("%d collections and %d bytes of garbage without any", n, b.garbage)
	}
	collected := func(when string, want uint32, garbage int64) {
		t.Helper()
		if n := collections() - before; n != want || b.garbage != garbage {
			t.Errorf("%s: %d collections and %d bytes of garbage, want %d and %d", when, n, b.garbage, want, garbage)
		}
	}
	a.Take(2 * large)
	a.Give(2 * large)
	a.Take(large)
	collected("an eighth is garbage", 0, 2*large)
	a.Give(large)
	other.Take(large - 1)
	collected("nothing large is made", 0, 3*large)
	other.Take(large)
	collected("more than an eighth is garbage", 1, 0)
	other.Give(2*large - 1)
	b.garbage = 0
	a.Take(8 * large)
	other.Take(7 * large)
	other.Give(2 * large)
	other.Take(2 * large)
	collected("garbage and what is held are a sixteenth more than the budget", 1, 2*large)
	other.Take(large)
	collected("more than a sixteenth", 2, 0)
}

// TestGarbageOfManyAtOnce: what has been taken and the garbage together are bounded, also while a collection runs.
func TestGarbageOfManyAtOnce(t *testing.T) {
	t.Parallel()
	b := New(64 * large)
	var work sync.WaitGroup
	var made atomic.Int64
	for i := range 8 {
		work.Go(func() {
			a := b.Account(accounts[i%len(accounts)])
			for range 50 {
				a.Wait(5*large, nil)
				made.Add(5 * large)
				b.mu.Lock()
				if n := made.Load(); n+b.garbage > b.limit+b.limit/crowdedShare {
					t.Errorf("%d bytes and %d of garbage", n, b.garbage)
				}
				b.mu.Unlock()
				made.Add(-5 * large)
				a.Give(5 * large)
			}
		})
	}
	work.Wait()
}

// TestShareBeyondItsPart: what one share has beyond its part comes from what is over, not from the parts of the others.
func TestShareBeyondItsPart(t *testing.T) {
	t.Parallel()
	s := New(120).Account(Deliveries).Shares(3)
	if !s[0].Take(70) || s[1].Take(35) || !s[2].Take(20) {
		t.Errorf("%d, %d and %d bytes are held", s[0].Held(), s[1].Held(), s[2].Held())
	}
}
