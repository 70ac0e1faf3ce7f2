// Package app is the HTTP app of a chaos run. It runs in a process of its own, so that killing it is real. It does what
// the plan of each message says, and writes every receipt down before it acts and every answer after it was written. What
// it has seen it reads from its own ledger, so a killed app goes on where it was.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// hang is how long an answer is withheld at most.
const hang = 30 * time.Second

// stopWithin bounds a graceful stop.
const stopWithin = 3 * time.Second

// App serves one ledger.
type App struct {
	log   *ledger.Writer
	addr  string
	conns atomic.Int64
	next  atomic.Int64
	start int64

	mu   sync.Mutex
	seen map[int]int // receipts by message
}

// Run serves at addr until SIGTERM, then finishes what is under way. SIGUSR1 closes the port, SIGUSR2 opens it again.
func Run(dir, addr string) error {
	a := &App{addr: addr, seen: map[int]int{}, start: ledger.Now()}
	err := ledger.Each(dir, ledger.AppFile, func(r *ledger.Receipt) error {
		if r.Status == 0 {
			a.seen[r.Seq]++
		}
		return nil
	})
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
	server, err := a.open()
	if err != nil {
		return err
	}
	for {
		select {
		case <-sync.C:
			_ = a.log.Sync()
		case s := <-signals:
			switch {
			case s == syscall.SIGUSR1 && server != nil:
				_ = server.Close()
				server = nil
			case s == syscall.SIGUSR2 && server == nil:
				if server, err = a.open(); err != nil {
					return err
				}
			case s == syscall.SIGTERM:
				return stop(server)
			}
		}
	}
}

func stop(server *http.Server) error {
	if server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}

// open listens. The port may still be held by a process that was killed a moment ago.
func (a *App) open() (*http.Server, error) {
	var l net.Listener
	var err error
	for range 100 {
		if l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", a.addr); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	s := &http.Server{
		Handler: a, ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				a.conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				a.conns.Add(-1)
			}
		},
	}
	go func() { _ = s.Serve(l) }()
	return s, nil
}

// ServeHTTP answers GET /connections with how many there are, any other GET with 200, and a POST as its plan says.
func (a *App) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = fmt.Fprint(w, a.conns.Load())
		return
	}
	id := r.Header.Get("Amqp-Message-Id")
	receipt := ledger.Receipt{
		Key: fmt.Sprintf("%d.%d", a.start, a.next.Add(1)), ID: id, Seq: plan.SeqOf(id),
		Mark: r.Header.Get("Amqp-Header-" + plan.HeaderMark), Odd: a.odd(r, id),
	}
	receipt.Attempt, _ = strconv.Atoi(r.Header.Get("Amqp-Delivery-Attempt"))
	receipt.Count, _ = strconv.Atoi(r.Header.Get("Amqp-Retry-Count"))
	p, err := plan.Parse(r.Header.Get("Amqp-Header-" + plan.HeaderPlan))
	if err != nil {
		receipt.Odd = err.Error()
	}
	answer := p.Answer(a.count(receipt.Seq))
	if !answer.Early {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			receipt.Sum = plan.Sum(body)
		}
	}
	receipt.At = ledger.Now()
	a.write(receipt)
	a.act(w, r, answer, receipt)
}

// count makes this one more receipt of message seq and returns which.
func (a *App) count(seq int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen[seq]++
	return a.seen[seq]
}

func (a *App) act(w http.ResponseWriter, r *http.Request, answer plan.Answer, receipt ledger.Receipt) {
	done := ledger.Receipt{Key: receipt.Key, Seq: receipt.Seq, Status: answer.Status}
	if answer.Slow {
		time.Sleep(plan.SlowAnswer)
	}
	done.Begun = ledger.Now()
	var err error
	switch {
	case answer.Hang:
		done.Status = ledger.Hung
		select {
		case <-r.Context().Done():
		case <-time.After(hang):
		}
		err = reset(w)
	case answer.Status == 0:
		done.Status = ledger.Aborted
		err = reset(w)
	case answer.Status == http.StatusFound:
		w.Header().Set("Location", "/elsewhere")
		err = respond(w, answer.Status)
	case answer.Status > 599: // net/http would not write it
		err = raw(w, answer.Status)
	default:
		err = respond(w, answer.Status)
	}
	if err != nil {
		done.Error = err.Error()
	}
	done.At = ledger.Now()
	a.write(done)
}

func (a *App) write(r ledger.Receipt) {
	if err := a.log.Write(r); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "ledger:", err) // without it nothing can be judged
		os.Exit(1)
	}
}

func respond(w http.ResponseWriter, status int) error {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
	return http.NewResponseController(w).Flush()
}

// reset breaks the connection without an answer.
func reset(w http.ResponseWriter) error {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return c.Close()
}

func raw(w http.ResponseWriter, status int) error {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c, "HTTP/1.1 %d Odd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
	return errors.Join(err, c.Close())
}

// odd names a request header that no message may cause, or a property that did not arrive.
func (a *App) odd(r *http.Request, id string) string {
	for name, want := range map[string]string{"Content-Type": plan.ContentType, "Amqp-Type": plan.Type, "Amqp-Correlation-Id": id} {
		if got := r.Header.Get(name); got != want {
			return name + ": " + got
		}
	}
	for name := range r.Header {
		switch name {
		case "X-Injected", "Authorization", "Cookie", "X-Forwarded-For", "Expect", "Transfer-Encoding":
			return name
		}
	}
	if r.Host != a.addr {
		return "Host " + r.Host
	}
	return ""
}
