package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// List is a comma-separated list of distinct words.
type List []string

// Statuses is a list of distinct HTTP status codes.
type Statuses []int

// Delays is a list of delays. nil means that none were configured, empty that the configuration asks for none.
type Delays []time.Duration

// Binding ties the service's queue to an exchange.
type Binding struct{ Exchange, Key string }

// Bindings is a list of distinct bindings.
type Bindings []Binding

// Pair gives a name a value.
type Pair struct{ Name, Value string }

// Pairs is a list of names, each of which is there once, and their values.
type Pairs []Pair

// noDelays is the value that asks for an empty list, because an empty value means unset.
const noDelays = "none"

// maxDelays bounds the number of delays: each is a queue.
const maxDelays = 32

// split cuts v at commas. Blanks around an item are allowed, because lists are wrapped in YAML; nothing else is.
func split(v string) ([]string, error) {
	items := strings.Split(v, ",")
	seen := make(map[string]bool, len(items))
	for i, item := range items {
		item = strings.Trim(item, " \t")
		switch {
		case item == "":
			return nil, fmt.Errorf("item %d of the list is empty", i+1)
		case seen[item]:
			return nil, fmt.Errorf("item %d of the list is there twice", i+1)
		}
		seen[item], items[i] = true, item
	}
	return items, nil
}

func parseList(v string) (List, error) { return split(v) }

func parseStatuses(v string) (Statuses, error) {
	items, err := split(v)
	if err != nil {
		return nil, err
	}
	var s Statuses
	for _, item := range items {
		n, err := strconv.Atoi(item)
		switch {
		case err != nil || len(item) != 3:
			return nil, fmt.Errorf("%s is not a status code", shown(item))
		case n >= 200 && n <= 299:
			return nil, fmt.Errorf("%d says that the app took the message", n)
		case n < 300 || n > 599:
			return nil, fmt.Errorf("%d is never the status of an answer", n)
		}
		s = append(s, n)
	}
	return s, nil
}

var errAscending = errors.New("delays must be ascending")

func parseDelays(v string) (Delays, error) {
	if v == noDelays {
		return Delays{}, nil
	}
	items, err := split(v)
	if err != nil {
		return nil, err
	}
	if len(items) > maxDelays {
		return nil, fmt.Errorf("%d delays would make as many queues", len(items))
	}
	var d Delays
	for _, item := range items {
		n, err := parseDuration(item)
		if err != nil {
			return nil, fmt.Errorf("%s is %w", shown(item), err)
		}
		if len(d) > 0 && n <= d[len(d)-1] {
			return nil, errAscending
		}
		d = append(d, n)
	}
	return d, nil
}

func parseBindings(v string) (Bindings, error) {
	items, err := split(v)
	if err != nil {
		return nil, err
	}
	var b Bindings
	for _, item := range items {
		exchange, key, found := strings.Cut(item, ":")
		if !found || exchange == "" {
			return nil, fmt.Errorf("%s is not exchange:key", shown(item))
		}
		for _, name := range []string{exchange, key} {
			if err := checkShortString(name); err != nil {
				return nil, fmt.Errorf("%s %w", shown(name), err)
			}
		}
		b = append(b, Binding{Exchange: exchange, Key: key})
	}
	return b, nil
}

func parseAssignments(v string) (Pairs, error) {
	items, err := split(v)
	if err != nil {
		return nil, err
	}
	var p Pairs
	for _, item := range items {
		name, value, found := strings.Cut(item, "=")
		switch {
		case !found || name == "" || value == "":
			return nil, fmt.Errorf("%s is not name=value", shown(item))
		case slices.ContainsFunc(p, func(other Pair) bool { return other.Name == name }):
			return nil, fmt.Errorf("%s is there twice", shown(name))
		}
		p = append(p, Pair{Name: name, Value: value})
	}
	return p, nil
}

// maxName is the longest name that AMQP can carry, in bytes. The client library answers a longer one by closing the
// whole connection, so such names are refused here.
const maxName = 255

// standard are the exchanges every vhost has.
var standard = []string{"amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"}

// checkShortString holds for everything AMQP sends as a short string: names and routing keys.
func checkShortString(v string) error {
	switch {
	case len(v) > maxName:
		return errors.New("is longer than 255 bytes")
	case !utf8.ValidString(v):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(v, unicode.IsControl):
		return errors.New("holds a control character")
	}
	return nil
}

// checkName checks the name of something the sidecar declares. Only the main exchange may be one of the broker's own.
func (l *loader) checkName(name, value string) {
	if value == "" {
		return
	}
	if err := checkShortString(value); err != nil {
		l.reject(name, "%v", err)
		return
	}
	if strings.TrimSpace(value) != value {
		l.reject(name, "starts or ends with a space")
		return
	}
	if name == "SIDECAR_EXCHANGE" && slices.Contains(standard, value) {
		return
	}
	if strings.HasPrefix(value, "amq.") {
		l.reject(name, "names that start with amq. are reserved by the broker")
	}
}
