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
	published bool // later rows of its key need not wait for it
	until     time.Time
	pause     time.Duration
	err       error
}

const (
	maxUnmarkedPause = 5 * time.Minute
	// unmarkedMemory is after which time a row is forgotten that was not claimed again: it is deleted, or another relay
	// has it.
	unmarkedMemory = time.Minute
)

var errKept = errors.New("the UPDATE left it as it was: a trigger or a policy of the table keeps it")

// note records the outcome of marking rows. The first pause of a row that could not be marked is first.
func (u markFailures) note(rows []*row, now time.Time, first time.Duration) {
	for _, x := range rows {
		if x.unmarked == nil {
			delete(u, x.id)
			continue
		}
		before := u[x.id]
		pause := min(max(2*before.pause, first), maxUnmarkedPause)
		u[x.id] = markFailure{before.published || x.result == sent, now.Add(pause), pause, x.unmarked}
	}
}

// forget removes rows that were not claimed for a while.
func (u markFailures) forget(now time.Time) {
	maps.DeleteFunc(u, func(_ string, r markFailure) bool { return now.After(r.until.Add(unmarkedMemory)) })
}

// full reports that so many rows are left out that nothing is to be claimed now.
func (u markFailures) full(now time.Time, most int) bool {
	if len(u) < most {
		return false
	}
	held, _ := u.held(now)
	return len(held) >= most || len(u) >= 4*most
}

// held returns the ids that must not be claimed now, and the ids that count as sent for other rows of their key.
func (u markFailures) held(now time.Time) (held, published []string) {
	for id, r := range u {
		if now.Before(r.until) {
			held = append(held, id)
		}
		if r.published {
			published = append(published, id)
		}
	}
	return held, published
}

// problem says what is wrong, for people; "" if nothing is.
func (u markFailures) problem(most int) string {
	if len(u) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Keys(u)))
	text := fmt.Sprintf("%d rows cannot be marked, row %s: %s", len(u), first, errorText(u[first].err))
	if len(u) >= most {
		text = "no more are claimed: " + text
	}
	return text
}
