// Package app is the HTTP app of a chaos run. It runs in a process of its own, so that killing it is real. It does what
// the plan of each message says, and writes every receipt down before it acts and every answer after it was written. It
// reads its past from its own ledger, so a killed app goes on where it was.
package app

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sidecar/internal/apptest"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

const (
	hang       = 30 * time.Second // how long an answer is withheld at most
	stopWithin = 3 * time.Second  // bounds a graceful stop
	openWithin = 2 * time.Second  // the port may still be held by a process that was killed a moment ago
)

// App serves one ledger.
type App struct {
	run    ledger.Run
	log    *ledger.Writer
	addr   string
	server *apptest.Server
	next   atomic.Int64
	start  int64

	mu   sync.Mutex
	seen map[int]int // receipts by message
}

// Run serves at addr until SIGTERM, then finishes what is under way. SIGUSR1 closes the port, SIGUSR2 opens it again.
func Run(dir, addr string) error {
	a := &App{addr: addr, seen: map[int]int{}, start: ledger.Now()}
	a.server = apptest.New(a.serve)
	err := ledger.ReadJSON(dir, ledger.RunFile, &a.run)
	if err != nil {
		return err
	}
	err = ledger.Lines(dir, ledger.AppFile, a.remember)
	if err != nil {
		return err
	}
	if a.log, err = ledger.Append(dir, ledger.AppFile); err != nil {
		return err
	}
	defer func() { _ = a.log.Close() }()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	sync := time.NewTicker(100 * time.Millisecond)
	defer sync.Stop()
	if err := a.open(); err != nil {
		return err
	}
	for up := true; ; {
		select {
		case <-sync.C:
			_ = a.log.Sync()
		case s := <-signals:
			switch {
			case s == syscall.SIGUSR1:
				a.server.Shut()
				up = false
			case s == syscall.SIGUSR2 && !up:
				if err := a.open(); err != nil {
					return err
				}
				up = true
			case s == syscall.SIGTERM:
				a.server.Shutdown(stopWithin)
				return nil
			}
		}
	}
}

// remember counts a receipt of an app before. There may be millions, and the sidecar waits for the app meanwhile: so
// only the number of its message is read.
func (a *App) remember(line []byte) error {
	if bytes.Contains(line, []byte(`"status":`)) || bytes.Contains(line, []byte(`"whole":`)) { // an answer, or no attempt
		return nil
	}
	_, text, _ := bytes.Cut(line, []byte(`"seq":`))
	text, _, _ = bytes.Cut(text, []byte(","))
	seq, err := strconv.Atoi(string(text))
	a.seen[seq]++
	return err
}

func (a *App) open() error {
	l, err := apptest.ListenWithin(openWithin, a.addr)
	if err == nil {
		a.server.Serve(l)
	}
	return err
}

func (a *App) serve(c *apptest.Conn) {
	for a.answer(c) {
	}
}

// answer answers a GET with the number of connections, and a POST as its plan says.
func (a *App) answer(c *apptest.Conn) bool {
	r, err := c.Begin()
	if errors.Is(err, apptest.ErrMalformed) {
		a.write(ledger.Receipt{Key: a.key(), At: ledger.Now(), Odd: err.Error()})
	}
	if err != nil {
		return false
	}
	if r.Method == http.MethodGet {
		return c.Send(apptest.Full(http.StatusOK, fmt.Sprint(a.server.Connections())))
	}
	if r.Header.Get("Content-Type") == gathered {
		return a.answerBatch(c, r)
	}
	receipt := ledger.Receipt{
		Key: a.key(), ID: r.ID, Seq: plan.SeqOf(r.ID), Mark: r.Header.Get("Amqp-Header-" + plan.HeaderMark), Odd: a.odd(r),
		Attempt: max(r.Number("Amqp-Delivery-Attempt"), 0), Count: max(r.Number("Amqp-Retry-Count"), 0),
	}
	p, err := plan.Parse(r.Header.Get("Amqp-Header-" + plan.HeaderPlan))
	if err != nil {
		receipt.Odd = err.Error()
	}
	answer := p.Answer(a.count(receipt.Seq))
	if !answer.Early && c.Finish(r) == nil {
		receipt.Sum = plan.Sum(r.Body)
	}
	receipt.At = ledger.Now()
	a.write(receipt)
	return a.act(c, answer, receipt) && (!answer.Early || c.Finish(r) == nil)
}

func (a *App) key() string { return fmt.Sprintf("%d.%d", a.start, a.next.Add(1)) }

// count makes this one more receipt of message seq and returns which.
func (a *App) count(seq int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen[seq]++
	return a.seen[seq]
}

func (a *App) act(c *apptest.Conn, answer plan.Answer, receipt ledger.Receipt) (keep bool) {
	done := ledger.Receipt{Key: receipt.Key, Seq: receipt.Seq, Status: answer.Status}
	if answer.Slow {
		time.Sleep(plan.SlowAnswer)
	}
	done.Begun = ledger.Now()
	var err error
	switch {
	case answer.Hang:
		done.Status = ledger.Hung
		a.hang(c)
		err = c.Reset()
	case answer.Status == 0:
		done.Status = ledger.Aborted
		err = c.Reset()
	case answer.Status == http.StatusFound:
		_, err = c.Write([]byte(apptest.Status(answer.Status, "Location: /elsewhere")))
	default:
		_, err = c.Write([]byte(apptest.Status(answer.Status)))
	}
	if err != nil {
		done.Error = err.Error()
	}
	done.At = ledger.Now()
	a.write(done)
	return err == nil && done.Status == answer.Status
}

// hang waits until the peer has gone.
func (*App) hang(c *apptest.Conn) {
	select {
	case <-c.Gone():
	case <-time.After(hang):
	}
}

func (a *App) write(r ledger.Receipt) {
	if err := a.log.Write(r); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "ledger:", err) // without it nothing can be judged
		os.Exit(1)
	}
}

// odd names a request header that no message may cause, or a property that did not arrive.
func (a *App) odd(r *apptest.Request) string {
	for name, want := range map[string]string{"Content-Type": plan.ContentType, "Amqp-Type": plan.Type,
		"Amqp-Correlation-Id": r.ID} {
		if got := r.Header.Get(name); got != want {
			return name + ": " + got
		}
	}
	return a.strange(r)
}

// strange is odd about the request alone.
func (a *App) strange(r *apptest.Request) string {
	for name := range r.Header {
		switch name {
		case "X-Injected", "Authorization", "Cookie", "X-Forwarded-For", "Expect", "Transfer-Encoding":
			return name
		}
	}
	if host := r.Header.Get("Host"); host != a.addr {
		return "Host " + host
	}
	return ""
}
