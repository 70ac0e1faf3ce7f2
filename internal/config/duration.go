package config

import (
	"errors"
	"strconv"
	"time"
)

var errDuration = errors.New("not a duration: a number with a unit, such as 500ms, 30s, 5m or 1h30m")

// parseDuration refuses a bare number, 0 included: whoever writes 5 may mean seconds or milliseconds.
func parseDuration(v string) (time.Duration, error) {
	if v == "0" || v == "-0" || v == "+0" { // the one number time.ParseDuration takes without a unit
		return 0, errDuration
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, errDuration
	}
	return d, nil
}

// Millis is a duration that the OpenTelemetry variables write as a bare number of milliseconds.
type Millis time.Duration

var errMillis = errors.New("not a whole number of milliseconds")

func parseMillis(v string) (Millis, error) {
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return 0, errMillis
	}
	return Millis(time.Duration(n) * time.Millisecond), nil
}
