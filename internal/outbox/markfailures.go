package outbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// markFailures are rows whose outcome could not be written to the table, by id: a constraint or a trigger refuses it.
// They look unpublished, and the next batch would publish them again. So this relay leaves them out of claims for a
// time that doubles. Used by the goroutine of Run only.
type markFailures map[string]markFailure

type markFailure struct {
	sent  bool // later rows of its key need not wait for it
	until time.Time
	pause time.Duration
	err   error
}

const (
	maxUnmarkedPause = 5 * time.Minute
	// unmarkedMemory is after which time a row is forgotten that was not claimed again: it is deleted, or another relay
	// has it.
	unmarkedMemory = time.Minute
)

var errKept = errors.New("the UPDATE left it as it was: a trigger or a policy of the table keeps it")

// note records the outcome of marking rows. The first pause of a row that could not be marked is first.
func (m markFailures) note(rows []*row, now time.Time, first time.Duration) {
	for _, x := range rows {
		if x.markErr == nil {
			delete(m, x.id)
			continue
		}
		before := m[x.id]
		pause := min(max(2*before.pause, first), maxUnmarkedPause)
		m[x.id] = markFailure{before.sent || x.result == sent, now.Add(pause), pause, x.markErr}
	}
}

// forget removes rows that were not claimed for a while.
func (m markFailures) forget(now time.Time) {
	maps.DeleteFunc(m, func(_ string, r markFailure) bool { return now.After(r.until.Add(unmarkedMemory)) })
}

// full reports that so many rows are left out that nothing is to be claimed now.
func (m markFailures) full(now time.Time, most int) bool {
	excluded, _ := m.excluded(now)
	return len(excluded) >= most
}

// excluded returns the ids that must not be claimed now, and the ids that count as sent for other rows of their key.
func (m markFailures) excluded(now time.Time) (excluded, sent []string) {
	for id, r := range m {
		if now.Before(r.until) {
			excluded = append(excluded, id)
		}
		if r.sent {
			sent = append(sent, id)
		}
	}
	return excluded, sent
}

// problem says what is wrong, for people; "" if nothing is.
func (m markFailures) problem(most int) string {
	if len(m) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Keys(m)))
	text := fmt.Sprintf("%d rows cannot be marked, row %s: %s", len(m), first, errorText(m[first].err))
	if len(m) >= most {
		text = "no more are claimed: " + text
	}
	return text
}
