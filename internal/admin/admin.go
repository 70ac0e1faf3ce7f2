// Package admin serves the sidecar's two HTTP listeners. The admin listener only reads: health, metrics, and whether a
// drain has ended; any client that reaches the port may. The control listener changes things (drain, pause, resume, the
// dead-letter queue) and shows messages. It does not use the broker or the app and decides nothing about messages: it
// calls a State and a dlq.API. It serves no profiles, no variables and no CORS.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/admin/dlq"
	"sidecar/internal/budget"
	"sidecar/internal/httpguard"
	"sidecar/internal/telemetry"
)

// Options is what a Server needs.
type Options struct {
	AdminAddr, ControlAddr string // host:port; port 0 takes a free one

	// Token returns the bearer token that every control request must carry. nil means no token is asked for, which
	// only a loopback ControlAddr allows. A Token that returns "" refuses every request: its file may be gone.
	Token func() string
	// ReadToken returns the token that only reads; nil means there is none.
	ReadToken func() string

	Grace       time.Duration // of a drain; bounds /drained
	State       State
	Topologies  []Topology // of each subscription
	DeadLetters *dlq.API   // what the control listener does with dead letters

	Memory   *budget.Account // asked before bytes of a request are held; nil bounds nothing
	Gatherer prometheus.Gatherer
	Logger   *slog.Logger
}

// Addrs is where the listeners are bound, as host:port.
type Addrs struct{ Admin, Control string }

// Server is both listeners. Listen, Serve and Shutdown are called once each, in this order.
type Server struct {
	o Options

	admin, control         *httpguard.Server
	refusals               telemetry.Throttle
	scrapes, busy, streams httpguard.Slots
	waits                  waits
	flow                   flowCache
	files                  map[string]string // of the console, by their exact paths

	stopping context.Context // ends with Shutdown, and waiting requests with it
	cancel   context.CancelFunc
}

// Bounds of both listeners. None of their requests is large or slow, except waiting on /drained.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 90 * time.Second // above any usual scrape interval, so that scrapes keep their connection
	maxHeaderBytes = 16 << 10
	bodyTimeout    = 5 * time.Second
	maxConns       = 256 // of each listener
)

// New prepares a server; it binds nothing yet.
func New(o Options) *Server {
	s := &Server{
		o: o, files: consoleFiles(), waits: waits{of: map[string]int{}},
		scrapes: make(httpguard.Slots, 4), busy: make(httpguard.Slots, 32), streams: make(httpguard.Slots, 8),
	}
	s.stopping, s.cancel = context.WithCancel(context.Background())
	s.admin = s.listener("admin", o.AdminAddr, s.adminRoutes())
	s.admin.Public = true
	s.control = s.listener("control", o.ControlAddr, s.guard(s.receive(s.busy.Limit(s.controlRoutes().ServeHTTP))))
	return s
}

func (s *Server) listener(name, addr string, h http.Handler) *httpguard.Server {
	return &httpguard.Server{
		Purpose: name, Variable: "SIDECAR_" + strings.ToUpper(name) + "_ADDR", Token: s.o.Token != nil, Conns: maxConns,
		Memory: s.o.Memory,
		Server: &http.Server{
			Addr:              addr,
			Handler:           s.common(h),
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       requestTimeout,
			WriteTimeout:      requestTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          telemetry.LibraryLog(s.o.Logger, "http"),
		},
	}
}

func (s *Server) listeners() []*httpguard.Server { return []*httpguard.Server{s.admin, s.control} }

// Listen binds both addresses. It refuses a control address that other machines can reach unless a token is set.
func (s *Server) Listen() (a Addrs, err error) {
	if a.Admin, err = s.admin.Listen(); err == nil {
		a.Control, err = s.control.Listen()
	}
	if err != nil {
		s.close()
	}
	return a, err
}

// Serve answers until Shutdown, then returns nil. It also ends, without waiting for requests, with ctx. When one
// listener breaks it closes the other and returns why.
func (s *Server) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.close)()
	ended := make(chan error, 2)
	for _, l := range s.listeners() {
		go func() {
			err := l.Serve()
			if err != nil {
				s.close()
			}
			ended <- err
		}()
	}
	return errors.Join(<-ended, <-ended)
}

// requestTime is how long running requests may take to finish at the end.
const requestTime = 2 * time.Second

// Shutdown gives an operation on the dead-letter queue until ctx ends to reach a safe point, and running requests two
// seconds of that to finish; then it cuts them off. Requests waiting on /drained are answered at once.
func (s *Server) Shutdown(ctx context.Context) {
	s.stop()
	s.o.DeadLetters.Wait(ctx) // before the requests: one of them may wait for it
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var stops sync.WaitGroup
	for _, l := range s.listeners() {
		stops.Go(func() {
			if err := l.Shutdown(ctx); err != nil {
				s.o.Logger.Debug("admin requests cut off", "error", err)
			}
		})
	}
	stops.Wait()
	s.close()
}

func (s *Server) stop() {
	s.cancel()
	s.o.DeadLetters.Stop()
}

// close ends everything now.
func (s *Server) close() {
	s.stop()
	for _, l := range s.listeners() {
		l.Close()
	}
}

// subscription returns the name of the subscription that the query asks for; "" when it asks for none. Otherwise status
// and detail are the answer. strict refuses other parameters, which may have been meant to name one.
func (s *Server) subscription(r *http.Request, strict bool) (name string, status int, detail string) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	asked, names := query["subscription"], s.o.State.Subscriptions()
	delete(query, "subscription")
	switch {
	case strict && (err != nil || len(query) > 0):
		return "", http.StatusBadRequest, "The only parameter is subscription."
	case asked == nil:
		return "", 0, ""
	case len(asked) == 1 && slices.Contains(names, asked[0]):
		return asked[0], 0, ""
	}
	return "", http.StatusNotFound, fmt.Sprintf("There is no subscription %.100q. The names are: %s.",
		strings.Join(asked, ","), strings.Join(names, ", "))
}
