package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Binding ties the service's queue to an exchange.
type Binding struct{ Exchange, Key string }

// noDelays is the value that asks for an empty list, because an empty value means unset.
const noDelays = "none"

// maxDelays bounds the number of delays: each is a queue.
const maxDelays = 32

// itemsOf cuts a list at commas, and drops blanks around the items, because lists are wrapped in YAML. An empty item
// stays in: it is an error.
func itemsOf(list string) []string {
	items := strings.Split(list, ",")
	for i, item := range items {
		items[i] = strings.Trim(item, " \t")
	}
	return items
}

// split returns the items of a list, which have to be different ones.
func split(v string) ([]string, error) {
	items := itemsOf(v)
	for i, item := range items {
		switch {
		case item == "":
			return nil, fmt.Errorf("item %d of the list is empty", i+1)
		case slices.Contains(items[:i], item):
			return nil, fmt.Errorf("item %d of the list is there twice", i+1)
		}
	}
	return items, nil
}

// parseItems parses every item of a list.
func parseItems[T any](v string, parse func(item string) (T, error)) ([]T, error) {
	items, err := split(v)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(items))
	for i, item := range items {
		if all[i], err = parse(item); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func parseStatuses(v string) ([]int, error) {
	return parseItems(v, func(item string) (int, error) {
		n, err := strconv.Atoi(item)
		switch {
		case err != nil || len(item) != 3:
			return 0, fmt.Errorf("%s is not a status code", shown(item))
		case n >= 200 && n <= 299:
			return 0, fmt.Errorf("%d says that the app took the message", n)
		case n < 300 || n > 599:
			return 0, fmt.Errorf("%d is never the status of an answer", n)
		}
		return n, nil
	})
}

func parseDelays(v string) ([]time.Duration, error) {
	if v == noDelays {
		return []time.Duration{}, nil
	}
	delays, err := parseItems(v, func(item string) (time.Duration, error) {
		d, err := parseDuration(item)
		if err != nil {
			err = fmt.Errorf("%s is %w", shown(item), err)
		}
		return d, err
	})
	if len(delays) > maxDelays {
		return nil, fmt.Errorf("%d delays would make as many queues", len(delays))
	}
	for i := 1; i < len(delays); i++ {
		if delays[i] <= delays[i-1] {
			return nil, errors.New("delays must be ascending")
		}
	}
	return delays, err
}

// checkItems is checkShortString for items of a list.
func checkItems(items ...string) error {
	for _, item := range items {
		if err := checkShortString(item); err != nil {
			return fmt.Errorf("%s %w", shown(item), err)
		}
	}
	return nil
}

func parseBindings(v string) ([]Binding, error) {
	return parseItems(v, func(item string) (Binding, error) {
		exchange, key, found := strings.Cut(item, ":")
		if !found || exchange == "" {
			return Binding{}, fmt.Errorf("%s is not exchange:key", shown(item))
		}
		return Binding{Exchange: exchange, Key: key}, checkItems(exchange, key)
	})
}

// parsePairs parses name=value items, in which no name may be there twice.
func parsePairs(v string) (map[string]string, error) {
	pairs := map[string]string{}
	_, err := parseItems(v, func(item string) (string, error) {
		name, value, found := strings.Cut(item, "=")
		switch {
		case !found || name == "" || value == "":
			return "", fmt.Errorf("%s is not name=value", shown(item))
		case pairs[name] != "":
			return "", fmt.Errorf("%s is there twice", shown(name))
		}
		pairs[name] = value
		return "", nil
	})
	return pairs, err
}
