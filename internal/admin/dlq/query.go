package dlq

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"sidecar/internal/deadletter"
)

// Bounds of a read.
const (
	defaultList, maxList = 20, 1000
	defaultScan, maxScan = 100_000, 1_000_000
)

type readParams struct {
	w      http.ResponseWriter
	r      *http.Request
	queues deadletter.Queues // of subscription, or all

	subscription string

	filter deadletter.Filter
	scan   deadletter.Scan
	bodies bool
}

// parameters are those of a path, beside the conditions of a filter.
type parameters struct {
	maxLimit, defaultLimit int // maxLimit 0: there is no such parameter; defaultLimit 0: all
	scan, body, conditions bool
	export                 bool // bodies are always shown
}

// readQuery reads the parameters of a read. An unknown one is refused: it may have been meant to leave messages out. An
// error is deadletter.ErrInvalid.
func readQuery(r *http.Request, known parameters) (readParams, error) {
	l := readParams{r: r, scan: deadletter.Scan{Limit: known.defaultLimit, Depth: defaultScan}, bodies: known.export}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return l, fmt.Errorf("%w: the query cannot be read", deadletter.ErrInvalid)
	}
	filter := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list := values[name]
		switch {
		case name == "subscription":
			if l.subscription = list[0]; len(list) > 1 || list[0] == "" {
				err = fmt.Errorf("%w: subscription must be one name", deadletter.ErrInvalid)
			}
		case name == "limit" && known.maxLimit > 0:
			l.scan.Limit, err = one(name, list, known.maxLimit)
		case name == "scan" && known.scan:
			l.scan.Depth, err = one(name, list, maxScan)
		case name == "body" && known.body:
			l.bodies, err = oneBool(name, list)
		case known.conditions:
			filter[name] = list
		default:
			err = fmt.Errorf("%w: unknown parameter %.100q", deadletter.ErrInvalid, name)
		}
		if err != nil {
			return l, err
		}
	}
	return l, l.filter.SetAll(filter)
}

// one reads a number from 1 to limit that is given once.
func one(name string, list []string, limit int) (int, error) {
	n, err := strconv.ParseUint(list[0], 10, 31)
	if err != nil || len(list) > 1 || n < 1 || n > uint64(limit) { // #nosec G115 -- a constant
		return 0, fmt.Errorf("%w: %s must be an integer from 1 to %d", deadletter.ErrInvalid, name, limit)
	}
	return int(n), nil // #nosec G115 -- 31 bits
}

// oneBool reads true or false that is given once.
func oneBool(name string, list []string) (bool, error) {
	if len(list) > 1 || list[0] != "true" && list[0] != "false" {
		return false, fmt.Errorf("%w: %s must be true or false", deadletter.ErrInvalid, name)
	}
	return list[0] == "true", nil
}
