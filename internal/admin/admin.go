// Package admin serves the sidecar's two HTTP listeners. The admin listener only reads: health, metrics, and whether a
// drain has ended; anyone who reaches the port may. The control listener changes things (drain, pause, resume, the
// dead-letter queue) and shows messages. It does not use the broker or the app and decides nothing about messages: it
// calls a State and a dlq.API. It serves no profiles, no variables and no CORS.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	Topology    Topology
	DeadLetters *dlq.API          // what the control listener does with dead letters
	Console     map[string]Static // the console's files by their exact paths

	Memory   *budget.Account // asked before bytes of a request are held; nil bounds nothing
	Gatherer prometheus.Gatherer
	Logger   *slog.Logger
}

// Addrs is where the listeners are bound, as host:port.
type Addrs struct{ Admin, Control string }

// Server is both listeners. Listen, Serve and Shutdown are called once each, in this order.
type Server struct {
	o Options

	admin, control             *http.Server
	adminLn, controlLn         net.Listener
	hosts                      httpguard.Hosts
	refusals                   telemetry.Throttle
	adminBounds, controlBounds *httpguard.Bounds
	scrapes, busy, streams     httpguard.Slots
	waits                      waits
	flow                       flowCache

	stopping chan struct{} // closed by Shutdown: waiting requests end
	stopOnce sync.Once
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
	if o.DeadLetters == nil {
		o.DeadLetters = dlq.New(dlq.Options{Logger: o.Logger})
	}
	s := &Server{
		o: o, stopping: make(chan struct{}),
		scrapes: make(httpguard.Slots, 4), busy: make(httpguard.Slots, 32), streams: make(httpguard.Slots, 8),
	}
	s.admin = s.server(s.adminRoutes())
	s.control = s.server(s.guard(s.receive(s.busy.Limit(s.controlRoutes().ServeHTTP))))
	s.adminBounds = httpguard.Bound(s.admin, maxConns, o.Memory)
	s.controlBounds = httpguard.Bound(s.control, maxConns, o.Memory)
	return s
}

func (s *Server) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           s.common(h),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// "OPTIONS *" would be answered without asking the handler.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     telemetry.LibraryLog(s.o.Logger, "http"),
	}
}

// Listen binds both addresses. It refuses a control address that other machines can reach unless a token is set.
func (s *Server) Listen() (Addrs, error) {
	var err error
	if s.adminLn, err = listen(s.o.AdminAddr); err != nil {
		return Addrs{}, fmt.Errorf("listen for admin: %w", err)
	}
	if s.controlLn, err = listen(s.o.ControlAddr); err != nil {
		return Addrs{}, errors.Join(fmt.Errorf("listen for control: %w", err), s.adminLn.Close())
	}
	s.hosts = httpguard.NewHosts(s.o.ControlAddr, s.controlLn.Addr(), s.o.Token != nil)
	if !s.hosts.Loopback() && s.o.Token == nil {
		err = fmt.Errorf("listen for control: %s is not a loopback address and no token is set", s.controlLn.Addr())
		return Addrs{}, errors.Join(err, s.adminLn.Close(), s.controlLn.Close())
	}
	return Addrs{Admin: s.adminLn.Addr().String(), Control: s.controlLn.Addr().String()}, nil
}

func listen(addr string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
}

// Serve answers until Shutdown, then returns nil. It also ends, without waiting for requests, with ctx. When one
// listener breaks it closes the other and returns why.
func (s *Server) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.close)()
	ended := make(chan error, 2)
	serve := func(name string, srv *http.Server, l net.Listener) {
		err := srv.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("serve %s: %w", name, err)
			s.close()
		}
		ended <- err
	}
	go serve("admin", s.admin, s.adminBounds.Listener(s.adminLn))
	go serve("control", s.control, s.controlBounds.Listener(s.controlLn))
	return errors.Join(<-ended, <-ended)
}

// Shutdown lets running requests finish until ctx ends, then cuts them off; that is not an error. Requests waiting on
// /drained are answered at once. An operation on the dead-letter queue ends at a safe point.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	s.o.DeadLetters.Wait(ctx) // before the requests: one of them may wait for it
	done := make(chan error, 2)
	for _, srv := range []*http.Server{s.admin, s.control} {
		go func() { done <- srv.Shutdown(ctx) }()
	}
	if err := errors.Join(<-done, <-done); err != nil {
		s.o.Logger.Debug("admin requests cut off", "error", err)
	}
	s.close()
	return nil
}

func (s *Server) stop() {
	s.stopOnce.Do(func() {
		close(s.stopping)
		s.o.DeadLetters.Stop()
	})
}

// close ends everything now. The listeners are closed here too because a server that never served does not know its.
func (s *Server) close() {
	s.stop()
	_, _ = s.admin.Close(), s.control.Close()
	for _, l := range []net.Listener{s.adminLn, s.controlLn} {
		if l != nil {
			_ = l.Close()
		}
	}
}
