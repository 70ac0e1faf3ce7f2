// Package outbox publishes the rows that an app has written into a table of its database: it claims rows, publishes
// them, waits for the broker's confirm of each and only then marks it as sent, all in one transaction. A row that was
// committed is published at least once; one that was rolled back never is.
//
// It keeps no cursor, because rows are committed in another order than that of their ids. It refuses to read the app's
// own tables, and to hold a transaction open while the broker is away. The relay changes no row that it has not
// claimed, except that it deletes sent rows after the retention time; the commands delete sent rows and release
// quarantined ones.
package outbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sethvargo/go-retry"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/telemetry"
)

const (
	// stopPublishing is how long a stop waits for confirms, stopBatch how long for the whole batch.
	stopPublishing = 4 * time.Second
	stopBatch      = 8 * time.Second

	// brokerPoll is how often a relay checks whether the broker is connected again.
	brokerPoll = 50 * time.Millisecond
)

// Options are what a relay works with.
type Options struct {
	Database     Database
	Names        Names
	Exchange     string        // of rows that name none
	DefaultType  string        // content type of rows without one; see amqpvalue.DefaultType
	Batch        int           // rows of one transaction; 0 = 500
	PollInterval time.Duration // between claims, without notifications
	MaxAttempts  int           // of a row that fails, until it is quarantined; 0 = 10
	Retention    time.Duration // of rows that were sent; 0 = they are kept

	Publisher  *broker.Publisher // which the relay has for itself
	Memory     *budget.Account   // asked before bytes of rows are held; nil bounds nothing
	Tracing    *telemetry.Tracing
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil = no metrics

	limits limits // the zero value means defaultLimits
}

// limits are the pauses of a relay in trouble, and how many rows it leaves out. Only tests change them.
type limits struct {
	backoff     time.Duration // first pause after a session or a publish failed; it doubles up to backoffMost
	failed      time.Duration // first pause of a row that failed
	nacked      time.Duration // first pause of a row that the broker did not accept
	unmarked    time.Duration // first pause of a row that cannot be marked
	retain      time.Duration // shortest time between two searches for rows to delete
	vacuum      int           // rows marked until the table is vacuumed
	maxUnmarked int           // rows left out, but for one batch: with so many no row is claimed until a pause is over
}

func (l limits) backoffMost() time.Duration { return 20 * l.backoff }

var defaultLimits = limits{
	backoff: 250 * time.Millisecond, failed: time.Second, nacked: time.Second, unmarked: time.Second,
	retain: 5 * time.Second, vacuum: 50_000, maxUnmarked: 1000,
}

// Relay publishes the rows of an outbox. Several may work on one table.
type Relay struct {
	o       Options
	metrics *metrics
	log     *slog.Logger

	markFailures markFailures
	nacks        telemetry.Throttle // log lines about rows that the broker nacks

	state     atomic.Pointer[State]
	upkeep    sync.WaitGroup // what works beside the batches
	vacuuming atomic.Bool
}

// State is how the relay is.
type State struct {
	Connected bool   // to the database, and the table can be used
	Problem   string // why not, or which rows cannot be marked; "" otherwise
}

// New returns a relay that works when Run does.
func New(o Options) *Relay {
	o.Batch, o.MaxAttempts = cmp.Or(o.Batch, 500), cmp.Or(o.MaxAttempts, 10)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.limits == (limits{}) {
		o.limits = defaultLimits
	}
	r := &Relay{o: o, markFailures: markFailures{}, metrics: newMetrics(o.Registerer)}
	r.nacks.Interval = nackedInterval
	r.log = o.Logger.With("table", o.Names.String())
	r.setState(State{})
	return r
}

// State returns the relay's state. It may be called at any time.
func (r *Relay) State() State { return *r.state.Load() }

func (r *Relay) setState(s State) {
	r.state.Store(&s)
	r.metrics.setConnected(s.Connected)
}

// Run publishes until ctx ends; then it finishes what is on its way, within bounds. Nothing else ends it: a database
// may be started again, a right granted, a table created.
func (r *Relay) Run(ctx context.Context) error {
	defer r.upkeep.Wait()
	if r.o.Retention > 0 {
		r.upkeep.Go(func() { r.retain(ctx) })
	}
	backoff, trouble, repeated := r.newBackoff(), "", &telemetry.Throttle{}
	for ctx.Err() == nil {
		worked, err := r.session(ctx)
		if worked {
			backoff, trouble = r.newBackoff(), ""
		}
		if err != nil && ctx.Err() == nil {
			pause, _ := backoff.Next()
			r.setState(State{Problem: err.Error()})
			if trouble != err.Error() {
				trouble, repeated = err.Error(), &telemetry.Throttle{Interval: time.Minute}
			}
			fix := ""
			if errors.Is(err, ErrNoTable) {
				fix = "sidecar outbox migrate makes it; a table of yours is named by SIDECAR_OUTBOX_TABLE"
			}
			repeated.Do(func(suppressed int) {
				r.log.Warn("outbox session over", "error", err, "fix", fix,
					"retry_in", pause.Round(time.Millisecond).String(), "suppressed", suppressed)
			})
			sleep(ctx, pause)
		}
	}
	r.setState(State{})
	return nil
}

func (r *Relay) newBackoff() retry.Backoff {
	return retry.WithJitterPercent(25, retry.WithCappedDuration(r.o.limits.backoffMost(),
		retry.NewExponential(r.o.limits.backoff)))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// session is one connection to the database. It belongs to one goroutine.
type session struct {
	r     *Relay
	conn  *pgconn.PgConn
	table *Table

	stop       context.Context // ends when the relay is to stop
	notified   bool            // a notification arrived since the last claim
	idle       bool            // inserts notify
	pollAfter  time.Duration   // how long it last waited because it could not become idle
	lowWater   lowWater
	worked     bool // it published something
	measureDue time.Time

	stream    *broker.Stream
	suspects  map[string]time.Time // exchanges, and until when they are
	heldKeys  map[string]time.Time // keys left out of claims, because another relay has their first row, and until when
	nackPause time.Duration

	marked int    // rows since the table was last vacuumed
	rows   []row  // memory that every batch uses again
	bodies []byte // see makeRoom
}

// session works on one connection until it breaks or ctx ends. worked: it published something, or lasted a while.
func (r *Relay) session(ctx context.Context) (worked bool, err error) {
	s := &session{r: r, stop: ctx, suspects: map[string]time.Time{}, heldKeys: map[string]time.Time{}}
	start := time.Now()
	if s.conn, err = r.o.Database.Connect(ctx, func() { s.notified = true }); err != nil {
		return false, err
	}
	defer Close(s.conn)
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopBatch, cancel) })()
	if err := s.open(work); err != nil {
		return false, err
	}
	defer s.dropStream()
	r.o.Logger.Info("outbox connected", "table", s.table.String(), "database", s.table.Database)
	err = s.loop(ctx, work)
	return s.worked || time.Since(start) > r.o.limits.backoffMost(), err
}

// open reads the table and prepares the connection for it.
func (s *session) open(ctx context.Context) (err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if s.table, err = Ready(ctx, s.conn, s.r.o.Names); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	return exec(ctx, s.conn, "LISTEN "+Quote(s.table.Channel()))
}

// loop runs one batch after the other while there are rows, and waits for a notification otherwise.
func (s *session) loop(ctx, work context.Context) error {
	pause := s.r.newBackoff()
	for ctx.Err() == nil {
		s.setState()
		if err := s.measure(work); err != nil {
			return err
		}
		ready := s.ready()
		if s.idle && (!ready || s.notified) {
			if err := s.setIdle(work, stmtLeaveIdle); err != nil {
				return err
			}
		}
		if !ready { // no transaction, and no claim, is held while nothing can be published
			sleep(ctx, brokerPoll)
			continue
		}
		s.notified = false
		b, err := s.runBatch(work)
		if err != nil {
			return err
		}
		s.vacuumMarked(ctx)
		if b.moved {
			pause = s.r.newBackoff()
			s.worked, s.pollAfter = true, 0
		}
		switch {
		case b.trouble != nil && !errors.Is(b.trouble, broker.ErrRefused):
			d, _ := pause.Next()
			s.r.o.Logger.Warn("outbox batch not published", "table", s.table.String(), "error", b.trouble, "retry_in",
				d.Round(time.Millisecond).String())
			sleep(ctx, d)
		case b.trouble != nil, b.hasMore():
		default:
			if err := s.listen(ctx, work, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// ready reports whether the broker accepts messages, and the database accepts marks.
func (s *session) ready() bool {
	p := s.r.o.Publisher
	excluded, _ := s.r.markFailures.excluded(time.Now())
	return p.Connected() && !p.Blocked() && len(excluded) < s.r.o.limits.maxUnmarked
}

// setState sets the relay's state to connected, with the rows that cannot be marked.
func (s *session) setState() {
	s.r.markFailures.forget(time.Now())
	s.r.setState(State{Connected: true, Problem: s.r.markFailures.problem(s.r.o.limits.maxUnmarked)})
}

// dropStream ends the stream: the outcome of messages in it is unknown.
func (s *session) dropStream() {
	if s.stream != nil {
		go s.stream.Close() // ends at the latest when the connection does
		s.stream = nil
	}
}

// flush sends what the stream keeps back.
func (s *session) flush() {
	if s.stream != nil {
		s.stream.Flush()
	}
}
