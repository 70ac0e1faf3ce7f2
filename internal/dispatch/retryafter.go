package dispatch

import (
	"time"

	"sidecar/internal/http1"
)

// retryAfter is a Retry-After header: seconds, or a date, or neither. The first that is understood counts.
type retryAfter struct {
	present bool
	seconds int64
	date    time.Time
}

func (r *retryAfter) set(b []byte) {
	if r.present {
		return
	}
	if s, ok := http1.ParseDigits(b); ok {
		*r = retryAfter{present: true, seconds: s}
	} else if d, ok := parseDate(b); ok {
		*r = retryAfter{present: true, date: d}
	}
}

// wait returns how long to wait from now, at most limit; 0 for a date that has passed.
func (r *retryAfter) wait(now time.Time, limit time.Duration) time.Duration {
	switch {
	case !r.date.IsZero():
		return max(0, min(r.date.Sub(now), limit))
	case r.seconds > int64(limit/time.Second): // before the product could overflow
		return limit
	}
	return time.Duration(r.seconds) * time.Second
}

// parseDate reads the three date formats of HTTP.
func parseDate(b []byte) (time.Time, bool) {
	if len(b) > 40 {
		return time.Time{}, false
	}
	s := string(b)
	for _, layout := range [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
