package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"sidecar/internal/deadletter"
)

// metered runs a meter for so many seconds, in each of which a hundred messages are read.
func metered(t *testing.T, width, seconds int) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := meter{w: &out, done: "redriven", width: width, began: time.Now(), shown: time.Now()} // it finds no terminal
		for i := range seconds {
			m.report(deadletter.Progress{Total: 10_000, Scanned: 100 * i, Matched: 50 * i, Done: 50 * i})
			time.Sleep(time.Second)
		}
		m.stop()
		text = out.String()
	})
	return text
}

func TestMeterWithoutATerminal(t *testing.T) {
	t.Parallel()
	if got := metered(t, 0, 9); got != "" {
		t.Errorf("after nine seconds: %q", got)
	}
	got := metered(t, 0, 25)
	want := " 10%  500 redriven, 50/s, 1000 of 10000 read, 1m30s left\n 20%  1000 redriven, 50/s, 2000 of 10000 read, 1m20s left\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMeterOnATerminal(t *testing.T) {
	t.Parallel()
	got := metered(t, 100, 3)
	if !strings.Contains(got, "\r[------------------------]   2%  100 redriven, ") || !strings.HasSuffix(got, "\r\x1b[K") || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
	for line := range strings.SplitSeq(metered(t, 40, 30), "\r") {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\x1b[K")); n > 39 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// TestMeterAfterACanary: the rate and the time left are those since the canary ended.
func TestMeterAfterACanary(t *testing.T) {
	t.Parallel()
	at := time.Unix(1e9, 0)
	p := deadletter.Progress{Total: 20_000, Scanned: 1000, Done: 1000, Canary: deadletter.CanaryProgress{Sent: 1000, Good: 999}}
	m := meter{done: "redriven", began: at}
	m.text(&p, at.Add(time.Minute))
	p.Scanned, p.Done, p.Canary.Good, p.Canary.Done = 1200, 1200, 1000, true
	if got, want := m.text(&p, at.Add(70*time.Second)), "  6%  1200 redriven, 20/s, 1200 of 20000 read, 15m40s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMeterText: the numbers of a large queue need most of 80 columns; the bar has what they leave.
func TestMeterText(t *testing.T) {
	t.Parallel()
	at := time.Unix(1e9, 0)
	large := deadletter.Progress{Total: 1_000_000, Scanned: 500_000, Matched: 412_000, Done: 412_000}
	for want, c := range map[string]struct {
		width, limit int
		p            deadletter.Progress
	}{
		"canary: waiting for 2 of 3 verdicts":                                                         {0, 0, deadletter.Progress{Total: 9, Scanned: 3, Done: 3, Canary: deadletter.CanaryProgress{Sent: 3, Good: 1}}},
		" 50%  40 redriven, 4/s, 50 of 100 read, 10s left":                                            {0, 0, deadletter.Progress{Total: 100, Scanned: 50, Matched: 40, Done: 40, Canary: deadletter.CanaryProgress{Sent: 3, Good: 3, Done: true}}},
		"[############------------]  50%  40 redriven, 4/s, 50 of 100 read, 10s left":                 {80, 0, deadletter.Progress{Total: 100, Scanned: 50, Matched: 40, Done: 40}},
		" 80%  40 redriven, 4/s, 50 of 100 read, 2s left":                                             {0, 50, deadletter.Progress{Total: 100, Scanned: 50, Matched: 40, Done: 40}},
		"  0%  0 redriven, 0/s, 0 of 100 read":                                                        {0, 0, deadletter.Progress{Total: 100}},
		"40 redriven, 4/s":                                                                            {80, 0, deadletter.Progress{Scanned: 40, Matched: 40, Done: 40}},
		"[########################] 100%  40 redriven, 4/s, 100 of 100 read, 0s left":                 {80, 0, deadletter.Progress{Total: 100, Scanned: 100, Done: 40}},
		"[############------------]  50%  412000 redriven, 41200/s, 500000 of 1000000 read, 10s left": {100, 0, large},
		"[######------]  50%  412000 redriven, 41200/s, 500000 of 1000000 read, 10s left":             {80, 0, large},
		" 50%  412000 redriven, 41200/s, 500000 of 1000000 read, 10s left":                            {70, 0, large},
	} {
		m := meter{width: c.width, limit: c.limit, done: "redriven", began: at}
		if got := m.text(&c.p, at.Add(10*time.Second)); got != want || c.width > 0 && len(got) >= c.width {
			t.Errorf("%d columns: %q, want %q", c.width, got, want)
		}
	}
}
