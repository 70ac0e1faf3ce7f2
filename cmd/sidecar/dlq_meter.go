package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"sidecar/internal/deadletter"
)

const (
	meterRedraw = 200 * time.Millisecond // on a terminal
	meterLine   = 10 * time.Second       // elsewhere
	meterWindow = 10 * time.Second       // over which the rate is taken
	meterBar    = 24                     // columns
)

// meter shows on standard error how far an action has come: a bar on a terminal, a line now and then elsewhere.
type meter struct {
	w     io.Writer
	width int // of the terminal; 0 = not a terminal
	done  string
	limit int
	quiet bool

	mu   sync.Mutex
	last deadletter.Progress

	past []sample
	ends chan struct{}
	wait sync.WaitGroup
}

// sample is how far it had come at a moment.
type sample struct {
	at            time.Time
	done, scanned int
}

// meter starts one; done is the word for what is done to messages, limit to how many at the most. stop ends it.
func (c *dlqCall) meter(done string, limit int) *meter {
	width, _ := terminalWidth(c.stderr)
	m := &meter{w: c.stderr, width: width, done: done, limit: limit, quiet: c.quiet, ends: make(chan struct{})}
	m.wait.Go(m.run)
	return m
}

// hide keeps it from showing anything.
func (m *meter) hide() {
	m.mu.Lock()
	m.quiet = true
	m.mu.Unlock()
}

// report takes the news. It never waits for the terminal.
func (m *meter) report(p deadletter.Progress) {
	m.mu.Lock()
	m.last = p
	m.mu.Unlock()
}

func (m *meter) run() {
	every := meterLine
	if m.width > 0 {
		every = meterRedraw
	}
	t := time.NewTicker(every)
	defer t.Stop()
	m.past = []sample{{at: time.Now()}}
	shown := false
	for {
		select {
		case now := <-t.C:
			shown = m.tick(now) || shown
		case <-m.ends:
			if shown && m.width > 0 {
				_, _ = io.WriteString(m.w, "\r\x1b[K") // the result replaces it
			}
			return
		}
	}
}

// tick shows how far it has come by now, unless nothing is to be shown.
func (m *meter) tick(now time.Time) (shown bool) {
	m.mu.Lock()
	p, quiet := m.last, m.quiet
	m.mu.Unlock()
	m.past = append(m.past, sample{now, p.Done, p.Scanned})
	for len(m.past) > 2 && now.Sub(m.past[0].at) > meterWindow {
		m.past = m.past[1:]
	}
	if quiet {
		return false
	}
	text := m.text(&p)
	if m.width > 0 {
		text = "\r" + cut(text, m.width-1) + "\x1b[K"
	} else {
		text += "\n"
	}
	_, _ = io.WriteString(m.w, text)
	return true
}

// stop ends it and waits until it shows nothing any more.
func (m *meter) stop() {
	close(m.ends)
	m.wait.Wait()
}

func (m *meter) text(p *deadletter.Progress) string {
	if k := p.Canary; k.Sent > 0 && !k.Done {
		return fmt.Sprintf("canary: waiting for %d of %d verdicts", k.Sent-k.Good, k.Sent)
	}
	first, last := m.past[0], m.past[len(m.past)-1]
	var rate, pace float64
	if s := last.at.Sub(first.at).Seconds(); s > 0 {
		rate, pace = float64(last.done-first.done)/s, float64(last.scanned-first.scanned)/s
	}
	text := fmt.Sprintf("%d %s, %.0f/s", p.Done, m.done, rate)
	if p.Total == 0 { // the total of an import or export is not known
		return text
	}
	// Whatever comes first ends it.
	part, left := float64(p.Scanned)/float64(p.Total), float64(p.Total-p.Scanned)/max(pace, 1e-9)
	if m.limit > 0 && float64(p.Matched)/float64(m.limit) > part {
		part, left = float64(p.Matched)/float64(m.limit), float64(m.limit-p.Matched)/max(rate, 1e-9)
	}
	part = min(part, 1)
	text = fmt.Sprintf("%3.0f%%  %s, %d of %d read", 100*part, text, p.Scanned, p.Total)
	if m.width > 0 {
		full := int(part * meterBar)
		text = "[" + strings.Repeat("#", full) + strings.Repeat("-", meterBar-full) + "] " + text
	}
	if eta := time.Duration(left * float64(time.Second)); left < (100 * time.Hour).Seconds() {
		text += ", " + eta.Round(time.Second).String() + " left"
	}
	return text
}
