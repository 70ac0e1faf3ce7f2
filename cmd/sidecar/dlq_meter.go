package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
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
	width int    // of the terminal; 0 = not a terminal
	done  string // the word for what is done to messages
	limit int    // how many messages at the most; 0 = any number

	last atomic.Pointer[deadletter.Progress]
	past []sample
	ends chan struct{}
	wait sync.WaitGroup
}

// sample is how far it had come at a moment.
type sample struct {
	at            time.Time
	done, scanned int
}

// meter starts one, which shows nothing if it is to be quiet. stop ends it.
func (c *call) meter(done string, limit int, quiet bool) *meter {
	width, _ := terminalWidth(c.stderr)
	m := &meter{w: c.stderr, width: width, done: done, limit: limit}
	if quiet {
		m.w = io.Discard
	}
	m.start()
	return m
}

func (m *meter) start() {
	m.ends = make(chan struct{})
	m.last.Store(&deadletter.Progress{})
	m.wait.Go(m.run)
}

// report takes the news. It never waits for the terminal.
func (m *meter) report(p deadletter.Progress) { m.last.Store(&p) }

// stop ends it and waits until it shows nothing any more.
func (m *meter) stop() {
	close(m.ends)
	m.wait.Wait()
}

func (m *meter) run() {
	every := meterLine
	if m.width > 0 {
		every = meterRedraw
	}
	t := time.NewTicker(every)
	defer t.Stop()
	m.past = []sample{{at: time.Now()}}
	for {
		select {
		case now := <-t.C:
			m.show(now)
		case <-m.ends:
			if len(m.past) > 1 && m.width > 0 {
				_, _ = io.WriteString(m.w, "\r\x1b[K") // the result replaces it
			}
			return
		}
	}
}

// show shows how far it has come by now.
func (m *meter) show(now time.Time) {
	p := m.last.Load()
	m.past = append(m.past, sample{now, p.Done, p.Scanned})
	for len(m.past) > 2 && now.Sub(m.past[0].at) > meterWindow {
		m.past = m.past[1:]
	}
	text := m.text(p) + "\n"
	if m.width > 0 {
		text = "\r" + cut(m.text(p), m.width-1) + "\x1b[K"
	}
	_, _ = io.WriteString(m.w, text)
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
