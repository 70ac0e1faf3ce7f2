package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// sample is what is seen now and then while a large table drains. Calls and times of claims count from the beginning.
type sample struct {
	Seconds float64 `json:"s"`
	Sent    int     `json:"sent"`
	RSS     int64   `json:"rss_bytes"`
	Claims  float64 `json:"claims"`
	ClaimMS float64 `json:"claims_ms"`
}

// long is one run on many rows.
type long struct {
	Run    relayRun `json:"run"`
	Series []sample `json:"series"`
	Open   bool     `json:"open_transaction,omitempty"` // another transaction was open all the while
}

// between is what happened from the share lo of the rows to the share hi: rows per second, and the database's time for
// a claim.
func (l *long) between(lo, hi float64) (rate, claim float64) {
	at := func(share float64) sample {
		i, _ := slices.BinarySearchFunc(l.Series, int(share*float64(l.Run.Load.Rows)),
			func(s sample, n int) int { return s.Sent - n })
		return l.Series[min(i, len(l.Series)-1)]
	}
	a, b := at(lo), at(hi)
	return float64(b.Sent-a.Sent) / max(b.Seconds-a.Seconds, 1e-9), (b.ClaimMS - a.ClaimMS) / max(b.Claims-a.Claims, 1)
}

// growth is the largest change of the resident memory after the first tenth of the rows, as a share of what it was
// then.
func (l *long) growth() (worst float64) {
	var base int64
	for _, s := range l.Series {
		switch {
		case s.Sent < l.Run.Load.Rows/10:
		case base == 0:
			base = s.RSS
		default:
			worst = max(worst, abs(float64(s.RSS)/float64(base)-1))
		}
	}
	return worst
}

// million: how a relay does on a million rows, and on fewer while another transaction is open, so that the database
// cannot remove what is dead.
func (b *bench) million() error {
	for _, open := range []bool{false, true} {
		l := pending{Rows: b.size(1_000_000), Body: 1024, Relays: 1}
		if open {
			l.Rows = b.size(200_000)
		}
		r, err := b.longRun(l, open)
		if err != nil {
			return err
		}
		b.produced.Long = append(b.produced.Long, r)
		first, claim := r.between(0, 0.1)
		last, lastClaim := r.between(0.9, 1)
		b.say("  %d rows, open transaction %t: %.0f rows/s at first, %.0f at last; a claim %.2f and %.2f ms; RSS changes "+
			"by %.1f %%, peak %.1f MiB, table x %.2f",
			l.Rows, open, first, last, claim, lastClaim, 100*r.growth(), mib(r.Run.Peak), r.Run.growth())
	}
	return nil
}

func (b *bench) longRun(l pending, open bool) (_ *long, err error) {
	if open {
		other, err := pgconn.Connect(b.ctx, b.db.dsn)
		if err != nil {
			return nil, err
		}
		defer func() { _ = other.Close(b.ctx) }()
		if _, err := other.Exec(b.ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM "+
			"pg_class").ReadAll(); err != nil {
			return nil, err
		}
	}
	out := &long{Open: open}
	begin := time.Now()
	var next time.Time
	run, err := b.relayed(b.sidecar, l, func(sent int, relay *process) error {
		if len(out.Series) == 0 {
			begin = time.Now()
		}
		if now := time.Now(); now.Before(next) && sent < l.Rows {
			return nil
		}
		next = time.Now().Add(500 * time.Millisecond)
		mem, err := memoryOf(relay.pid())
		calls, ms, dbErr := b.db.claims()
		out.Series = append(out.Series, sample{time.Since(begin).Seconds(), sent, mem.now, calls, ms})
		return errors.Join(err, dbErr)
	})
	if err != nil {
		return nil, fmt.Errorf("%d rows: %w", l.Rows, err)
	}
	out.Run = *run
	return out, nil
}

// rest is what a sidecar needs that has nothing to do.
type rest struct {
	RSS      int64   `json:"rss_bytes"`
	CPU      float64 `json:"cpu_share"`    // of a core
	Database float64 `json:"db_cpu_share"` // of a core
}

// restSeconds is how long a sidecar is watched.
const restSeconds = 10

// produceIdle: nothing to do, with publish and outbox switched on and with both off.
func (b *bench) produceIdle() error {
	b.produced.Rest = map[string][]rest{}
	addr, err := b.freeAddr()
	if err != nil {
		return err
	}
	both := append(b.relayEnv(b.sidecar), "SIDECAR_PUBLISH_ADDR="+addr)
	var steps []func() error
	for name, env := range map[string][]string{"both off": nil, "publish and outbox": both} {
		steps = append(steps, func() error {
			c := b.sidecar
			c.env = env
			r, err := b.restRun(c)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			b.say("  %-18s %.1f MiB, CPU %.2f %%, database %.2f %% of a core", name, mib(r.RSS), 100*r.CPU, 100*r.Database)
			b.produced.Rest[name] = append(b.produced.Rest[name], *r)
			return nil
		})
	}
	if err := errors.Join(b.purgeSent(), b.db.empty()); err != nil {
		return err
	}
	return b.rounds(min(b.o.runs, fewRounds), steps...)
}

func (b *bench) restRun(c candidate) (_ *rest, err error) {
	p, err := b.launch(c, 50)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := b.pause(3 * time.Second); err != nil {
		return nil, err
	}
	before, err := b.spending(nil, p)
	if err != nil {
		return nil, err
	}
	if err := b.pause(restSeconds * time.Second); err != nil {
		return nil, err
	}
	after, err := b.spending(nil, p)
	if err != nil {
		return nil, err
	}
	mem, err := memoryOf(p.pid())
	spent := after.minus(before)
	return &rest{mem.now, spent.candidates / restSeconds, spent.database / restSeconds}, err
}
