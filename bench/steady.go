package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The load of the scenario outbox-steady.
const (
	steadyRows    = 50 // of one transaction
	steadyPause   = 100 * time.Millisecond
	steadySamples = 20
)

// steadySample is the table at one moment of a steady load.
type steadySample struct {
	Seconds float64 `json:"s"`
	Rows    float64 `json:"rows"` // nearly all are sent
	Table   float64 `json:"table_bytes"`
}

// steady: 500 rows of 1 KiB a second, which all stay in the table, and its size over time.
func (b *bench) steady() (err error) {
	if err := errors.Join(b.purgeSent(), b.db.empty()); err != nil {
		return err
	}
	c := b.sidecar
	c.env = append(b.relayEnv(c), c.env...)
	p, err := b.launch(c, 50)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := b.relays(1); err != nil {
		return err
	}
	begin, rows := time.Now(), 0.0
	due := b.o.steady / steadySamples
	for next := begin; due <= b.o.steady; next = next.Add(steadyPause) {
		if err := errors.Join(b.pause(time.Until(next)), b.db.pend(steadyRows, 1024), b.db.exec("COMMIT")); err != nil {
			return err
		}
		rows += steadyRows
		if time.Since(begin) < due {
			continue
		}
		due += b.o.steady / steadySamples
		s := steadySample{Seconds: time.Since(begin).Seconds(), Rows: rows}
		if err := b.db.tableSize(&s.Table); err != nil {
			return err
		}
		b.say("  %4.0f s  %8.0f rows  %7.1f MiB  %.0f bytes a row", s.Seconds, s.Rows, s.Table/(1<<20), s.Table/s.Rows)
		b.produced.Steady = append(b.produced.Steady, s)
	}
	return b.drainTable(int(rows), p, nil)
}

func (p *produced) steady(b *strings.Builder) {
	if len(p.Steady) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Outbox: %d rows of 1 KiB a second\n\nAll rows stay. The table with its indexes.\n",
		steadyRows*time.Second/steadyPause)
	table(b, []string{"seconds", "rows", "table, MiB", "bytes a row"}, func(row func(...string)) {
		for _, s := range p.Steady {
			row(number(s.Seconds), number(s.Rows), number(s.Table/(1<<20)), number(s.Table/s.Rows))
		}
	})
}
