// Package budget bounds the memory of everything that is received: deliveries, requests, rows, answers. A caller takes
// bytes from an Account before it holds them and gives them back afterwards; without them it waits or refuses. The
// package allocates nothing itself and does not read the bytes.
package budget

import (
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The accounts of a Budget: the values of the metric label "of".
const (
	Deliveries  = "deliveries"   // messages taken from the service's queue and not settled
	Publish     = "publish"      // requests to the publish listener: headers, bodies, lines of batches
	Outbox      = "outbox"       // rows on their way to the broker
	Answers     = "answers"      // bodies of the app's answers, and requests with several messages
	DeadLetters = "dead_letters" // messages taken from the dead-letter queue
	Requests    = "requests"     // to the admin and control listeners
)

var accounts = []string{Deliveries, Publish, Outbox, Answers, DeadLetters, Requests}

// Budget is a number of bytes that its accounts share.
//
// One account alone may hold half of it. The other half is for the others, so that a queue of large messages does not
// keep the app from publishing, without which it may never be able to answer. The exception is a single thing that is
// larger than half: an account that holds nothing may take up to the whole budget at once.
type Budget struct {
	limit    int64
	accounts map[string]*Account

	collecting sync.Mutex // held during a collection; locked before mu

	mu      sync.Mutex
	used    int64
	garbage int64         // bytes of large things that were given back and not collected yet
	waiting []*waiter     // in the order of their arrival
	freed   chan struct{} // see Account.Freed; nil: not asked for
}

// Account is what one kind of thing holds. A nil Account bounds nothing.
type Account struct {
	b     *Budget
	whole *Account   // the account that this is a share of; nil: it is not a share
	parts []*Account // all shares of whole; nil: it is not a share
	share int64      // what it may hold in bytes, unless a single thing is larger
	held  int64      // with that of its shares; guarded by b.mu
}

type waiter struct {
	a       *Account
	n       int64
	granted chan struct{} // closed when the bytes are taken
}

// New returns a budget of limit bytes.
func New(limit int64) *Budget {
	b := &Budget{limit: limit, accounts: map[string]*Account{}}
	for _, of := range accounts {
		b.accounts[of] = &Account{b: b, share: limit / 2}
	}
	return b
}

// Account returns the account of that name, which must be one of the constants.
func (b *Budget) Account(of string) *Account {
	a := b.accounts[of]
	if a == nil {
		panic("budget: no account " + of)
	}
	return a
}

// Limit is the whole budget in bytes: nothing larger can ever be taken.
func (b *Budget) Limit() int64 { return b.limit }

// Limit is that of the account's budget.
func (a *Account) Limit() int64 {
	if a == nil {
		return 1<<63 - 1
	}
	return a.b.limit
}

// Take takes n bytes if they are free now. It does not overtake a waiter whose bytes are not free yet.
func (a *Account) Take(n int64) bool {
	if a == nil {
		return true
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if !a.fits(n) {
		return false
	}
	a.add(n)
	a.b.collect(n)
	return true
}

func (a *Account) fits(n int64) bool {
	return (a.whole != nil || !a.b.queued()) && a.mayHold(n) && a.b.used+n <= a.b.limit
}

// Fits reports whether Take would succeed now.
func (a *Account) Fits(n int64) bool {
	if a == nil {
		return true
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	return a.fits(n)
}

// Freed returns a channel that is closed when Fits may have changed from false to true.
func (a *Account) Freed() <-chan struct{} {
	if a == nil {
		return nil
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.b.freed == nil {
		a.b.freed = make(chan struct{})
	}
	return a.b.freed
}

// large is from what size on bytes that were given back count as garbage, which fills memory until it is collected:
// when it is garbageShare of the budget, or crowdedShare while all of the budget is held. The runtime alone would let
// large buffers grow past any limit: it starts to collect when there is too much already, and lets the next buffer be
// made meanwhile.
const (
	large        = 64 << 10
	garbageShare = 8
	crowdedShare = 16
)

// collect is called with the lock, when n bytes are taken and before they are made.
func (b *Budget) collect(n int64) {
	if n < large || !b.crowded() {
		return
	}
	b.mu.Unlock()
	b.collecting.Lock() // nothing large is made during a collection that has to make room for it
	defer b.collecting.Unlock()
	b.mu.Lock()
	if !b.crowded() {
		return
	}
	before := b.garbage // a collection may leave what becomes garbage while it runs
	b.mu.Unlock()
	runtime.GC()
	b.mu.Lock()
	b.garbage -= before
}

func (b *Budget) crowded() bool {
	return b.garbage > min(b.limit/garbageShare, b.limit-b.used+b.limit/crowdedShare)
}

// Wait takes n bytes as soon as they are free. It returns false, and has taken nothing, when stop is closed before, or
// when n is more than the whole budget. The caller must not hold bytes of the account that only it can give back.
func (a *Account) Wait(n int64, stop <-chan struct{}) bool {
	if a == nil {
		return true
	}
	if n > a.b.limit {
		return false
	}
	w := &waiter{a: a, n: n, granted: make(chan struct{})}
	a.b.mu.Lock()
	a.b.waiting = append(a.b.waiting, w)
	a.b.grant()
	a.b.mu.Unlock()
	select {
	case <-w.granted:
	case <-stop:
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if i := slices.Index(a.b.waiting, w); i >= 0 { // not granted before stop
		a.b.waiting = slices.Delete(a.b.waiting, i, i+1)
		a.b.released() // w may have kept out others
		return false
	}
	a.b.collect(n)
	return true
}

// Give gives n bytes back. From 64 KiB on the caller must not refer to them any more: they count as garbage.
func (a *Account) Give(n int64) {
	if n >= large {
		a.give(n, n)
	} else {
		a.give(n, 0)
	}
}

// Keep is Give for a buffer that is kept to be used again: its bytes are not garbage.
func (a *Account) Keep(n int64) { a.give(n, 0) }

func (a *Account) give(n, garbage int64) {
	if a == nil || n == 0 {
		return
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.b.garbage += garbage
	a.add(-n)
	if a.held < 0 {
		panic("budget: more given back than was taken")
	}
	a.b.released()
}

// Held is what the account holds now, in bytes.
func (a *Account) Held() int64 {
	if a == nil {
		return 0
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	return a.held
}

func (a *Account) add(n int64) {
	a.b.used += n
	for ; a != nil; a = a.whole {
		a.held += n
	}
}

// queued reports whether a waiter could take its bytes if only the others held less. What becomes free is for the first
// such waiter: otherwise many small things would keep a large one out for ever.
func (b *Budget) queued() bool {
	return slices.ContainsFunc(b.waiting, func(w *waiter) bool { return w.a.mayHold(w.n) })
}

// released has to be called when memory was given back, and when a waiter gave up.
func (b *Budget) released() {
	b.grant()
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// grant lets waiters take their bytes, in their order, up to the first one for which the others hold too much.
func (b *Budget) grant() {
	for i := 0; i < len(b.waiting); {
		w := b.waiting[i]
		switch {
		case !w.a.mayHold(w.n): // its own account is full: others need not wait for that
			i++
		case b.used+w.n > b.limit:
			return
		default:
			w.a.add(w.n)
			close(w.granted)
			b.waiting = slices.Delete(b.waiting, i, i+1)
		}
	}
}

// Register registers the metrics of b.
func (b *Budget) Register(r prometheus.Registerer) {
	metrics := promauto.With(r)
	for of, a := range b.accounts {
		metrics.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sidecar_memory_bytes", ConstLabels: prometheus.Labels{"of": of},
			Help: "Memory that is held for received data, by what they are: estimated when they are taken, decoded headers " +
				"included.",
		}, func() float64 { return float64(a.Held()) })
	}
	metrics.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidecar_memory_budget_bytes", Help: "What sidecar_memory_bytes may be in all (SIDECAR_MEMORY).",
	}, func() float64 { return float64(b.limit) })
}
