package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// pending is a load of rows.
type pending struct {
	Rows   int `json:"rows"`
	Body   int `json:"body_bytes"`
	Relays int `json:"relays"`
}

// relayRun is what one run of one candidate showed, from the commit of the rows until each is marked as sent.
type relayRun struct {
	Candidate string  `json:"candidate"`
	Load      pending `json:"load"`
	Rate      float64 `json:"rows_per_s"`
	CPU       float64 `json:"cpu_s"` // of all relays
	Broker    float64 `json:"broker_cpu_s"`
	Database  float64 `json:"database_cpu_s"`
	Peak      int64   `json:"peak_rss_bytes"` // of the largest
	Claims    float64 `json:"claims"`
	ClaimMS   float64 `json:"claim_ms"` // of the server for each
	// bytes of the table with its indexes and TOAST: when the rows are committed, and when all are marked
	Live  float64 `json:"table_live_bytes"`
	After float64 `json:"table_after_bytes"`
}

func (r *relayRun) per10k(cpu float64) float64 { return cpu / float64(r.Load.Rows) * 10_000 }

// Rounds of what takes long.
const fewRounds = 3

// growth is by how much marking made the table larger.
func (r *relayRun) growth() float64 { return r.After / r.Live }

// outbox: rows that are committed at once, relayed by one process and by two.
func (b *bench) outbox() error {
	keep := false
	var steps []func() error
	for _, relays := range []int{1, 2} {
		for _, c := range b.with(candidate{name: "baseline", path: filepath.Join(b.tools, "relay")}) {
			l := pending{Rows: b.size(100_000), Body: 1024, Relays: relays}
			steps = append(steps, func() error {
				l := l
				if !keep {
					l.Rows /= 10
				}
				r, err := b.relayed(c, l, nil)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				b.say("  %-10s x%d %8.0f rows/s   CPU s/10k %6.3f, database %6.3f, broker %6.3f   peak %5.1f MiB, a claim "+
					"%.2f ms, table x %.2f", c.name, relays, r.Rate, r.per10k(r.CPU), r.per10k(r.Database), r.per10k(r.Broker),
					mib(r.Peak), r.ClaimMS, r.growth())
				if keep {
					b.produced.Outbox = append(b.produced.Outbox, r)
				}
				return nil
			})
		}
	}
	b.say("  warm-up")
	if err := b.rounds(1, steps...); err != nil {
		return err
	}
	keep = true
	b.say("  measured")
	return b.rounds(min(b.o.runs, fewRounds), steps...)
}

// relayed is one run: the relays are connected and find nothing, then the rows are committed. watch is called now and
// then until all have left, unless it is nil.
func (b *bench) relayed(c candidate, l pending, watch func(sent int, relay *process) error) (_ *relayRun, err error) {
	if err := errors.Join(b.purgeSent(), b.db.empty()); err != nil {
		return nil, err
	}
	c.env = append(b.relayEnv(c), c.env...)
	var relays []*process
	defer func() {
		for _, p := range relays {
			if stopErr := p.stop(); stopErr != nil || err != nil {
				err = errors.Join(err, stopErr, errors.New(p.tail()))
			}
		}
	}()
	for range l.Relays {
		p, err := b.launch(c, 50)
		if err != nil {
			return nil, err
		}
		relays = append(relays, p)
	}
	if err := errors.Join(b.relays(l.Relays), b.db.pend(l.Rows, l.Body)); err != nil {
		return nil, err
	}
	out := &relayRun{Candidate: c.name, Load: l}
	before, err := b.spending(nil, relays...)
	if err := errors.Join(err, b.db.tableSize(&out.Live), b.db.exec("COMMIT")); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := b.drainTable(l.Rows, relays[0], watch); err != nil {
		return nil, err
	}
	out.Rate = float64(l.Rows) / time.Since(begin).Seconds()
	after, err := b.spending(nil, relays...)
	if err != nil {
		return nil, err
	}
	spent := after.minus(before)
	out.CPU, out.Broker, out.Database = spent.candidates, spent.broker, spent.database
	for _, p := range relays {
		mem, err := memoryOf(p.pid())
		if err != nil {
			return nil, err
		}
		out.Peak = max(out.Peak, mem.peak)
	}
	calls, ms, err := b.db.claims()
	out.Claims, out.ClaimMS = calls, ms/max(calls, 1)
	return out, errors.Join(err, b.db.tableSize(&out.After), b.sentOnce(c.name, l.Rows))
}

func (b *bench) relayEnv(c candidate) []string {
	if !c.sidecar {
		return []string{"POSTGRES_DSN=" + b.db.dsn, "EXCHANGE=" + sentQueue}
	}
	return []string{"SIDECAR_OUTBOX_DSN=" + b.db.dsn, "SIDECAR_PUBLISH_EXCHANGES=default=" + sentQueue}
}

func (r *rig) purgeSent() error {
	if err := r.declareSent(); err != nil {
		return err
	}
	_, err := r.ch.QueuePurge(sentQueue, false)
	return err
}

// sentOnce is the ledger: every row is in the queue once.
func (r *rig) sentOnce(who string, n int) error {
	there, err := r.inSentAtRest()
	if err == nil && there != n {
		err = fmt.Errorf("the ledger of %s does not balance: %d of %d messages are in the queue", who, there, n)
	}
	return err
}

// drainTable returns when all rows have been sent. It counts the queue, which is cheap, and asks the database
// at the end only.
func (b *bench) drainTable(n int, relay *process, watch func(int, *process) error) error {
	last, moved := 0, time.Now()
	for there := 0; there < n; {
		if err := b.pause(25 * time.Millisecond); err != nil {
			return err
		}
		var err error
		if there, err = b.inSent(); err != nil {
			return err
		}
		if there != last {
			last, moved = there, time.Now()
		}
		if time.Since(moved) > b.patience {
			return fmt.Errorf("%d of %d rows were sent, and no more come", there, n)
		}
		if watch != nil {
			if err := watch(there, relay); err != nil {
				return err
			}
		}
	}
	for end := time.Now().Add(b.patience); ; {
		done, err := b.db.sent()
		if err != nil || done {
			return err
		}
		if time.Now().After(end) {
			return errors.New("rows that were published are not marked")
		}
		if err := b.pause(5 * time.Millisecond); err != nil {
			return err
		}
	}
}
