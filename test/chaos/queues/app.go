package queues

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sidecar/internal/apptest"
	"sidecar/test/chaos/ledger"
)

// Seen is what the app reports of one path.
type Seen struct {
	Receipts int64 `json:"receipts"`
	Last     int64 `json:"last"` // when the last one arrived
}

type app struct {
	run    Run
	log    *ledger.Writer
	server *apptest.Server
	next   atomic.Int64
	start  int64

	mu    sync.Mutex
	tried map[Name]int
	seen  []Seen
	modes []Mode
}

// Serve is the app of a run, at addr until SIGTERM. It reads its past from its own ledger, so that an app that was
// killed goes on where it was.
func Serve(dir, addr string) error {
	a := &app{tried: map[Name]int{}, start: ledger.Now()}
	if err := ledger.ReadJSON(dir, ledger.RunFile, &a.run); err != nil {
		return err
	}
	a.seen, a.modes = make([]Seen, len(a.run.Names)), make([]Mode, len(a.run.Names))
	err := ledger.Each(dir, ledger.AppFile, func(r *Receipt) error {
		if n, ok := nameOf(a.run.ID, r.ID); ok {
			a.count(n, r.At)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if a.log, err = ledger.Append(dir, ledger.AppFile); err != nil {
		return err
	}
	l, err := apptest.ListenWithin(2*time.Second, addr)
	if err != nil {
		return err
	}
	a.server = apptest.New(func(c *apptest.Conn) {
		for a.answer(c) {
		}
	})
	a.server.Serve(l)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	a.server.Shutdown(3 * time.Second)
	return a.log.Close()
}

// count makes the receipt one more of its message and of its queue, and returns which of the message, and the mode.
func (a *app) count(n Name, at int64) (nth int, mode Mode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried[n]++
	if n.Queue < len(a.seen) {
		s := &a.seen[n.Queue]
		s.Receipts, s.Last, mode = s.Receipts+1, max(s.Last, at), a.modes[n.Queue]
	}
	return a.tried[n], mode
}

// answer answers one request: GET /seen and POST /mode are the driver's, everything else is a message.
func (a *app) answer(c *apptest.Conn) bool {
	r, err := c.Begin()
	if err != nil || c.Finish(r) != nil {
		return false
	}
	switch {
	case r.Target == "/seen":
		a.mu.Lock()
		b, err := json.Marshal(a.seen)
		a.mu.Unlock()
		return err == nil && c.Send(apptest.Full(http.StatusOK, string(b)))
	case strings.HasPrefix(r.Target, "/mode?"):
		return c.Send(apptest.Status(a.set(r.Target)))
	case r.Method != http.MethodPost: // a probe
		return c.Send(apptest.Status(http.StatusOK))
	}
	receipt := Receipt{
		Call: fmt.Sprintf("%d.%d", a.start, a.next.Add(1)), ID: r.ID, Path: strings.TrimPrefix(r.Target, "/"),
		Attempt: r.Number("Amqp-Delivery-Attempt"), Count: r.Number("Amqp-Retry-Count"), At: ledger.Now(),
	}
	n, _ := nameOf(a.run.ID, r.ID)
	nth, mode := a.count(n, receipt.At)
	a.write(receipt)
	answers := plan(a.run.Seed, n)
	do := answers[min(nth, len(answers))-1]
	switch mode {
	case Fails:
		do = answer{status: http.StatusInternalServerError}
	case Hangs:
		do = answer{status: ledger.Hung}
	}
	return a.act(c, do, receipt.Call)
}

// act answers and writes that down.
func (a *app) act(c *apptest.Conn, do answer, call string) (keep bool) {
	time.Sleep(do.after)
	done := Receipt{Call: call, Status: do.status, Begun: ledger.Now()}
	var err error
	switch do.status {
	case ledger.Hung:
		select {
		case <-c.Gone():
		case <-time.After(30 * time.Second):
		}
		err = c.Reset()
	case ledger.Aborted:
		err = c.Reset()
	default:
		_, err = c.Write([]byte(apptest.Status(do.status)))
	}
	if err != nil {
		done.Error = err.Error()
	}
	done.At = ledger.Now()
	a.write(done)
	return err == nil && do.status > 0
}

// set changes the mode of one queue.
func (a *app) set(target string) int {
	u, err := url.ParseRequestURI(target)
	var queue int
	if err == nil {
		_, err = fmt.Sscan(u.Query().Get("queue"), &queue)
	}
	if err != nil || queue < 0 || queue >= len(a.modes) {
		return http.StatusBadRequest
	}
	a.mu.Lock()
	a.modes[queue] = Mode(u.Query().Get("mode"))
	a.mu.Unlock()
	return http.StatusOK
}

func (a *app) write(r Receipt) {
	if err := a.log.Write(r); err != nil && !errors.Is(err, os.ErrClosed) {
		_, _ = fmt.Fprintln(os.Stderr, "ledger:", err) // without it nothing can be judged
		os.Exit(1)
	}
}
