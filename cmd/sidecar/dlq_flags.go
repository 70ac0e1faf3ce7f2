package main

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"sidecar/internal/config"
	"sidecar/internal/deadletter"
)

// takesUsual declares the flags that every command has.
func (c *call) takesUsual() {
	c.flags.BoolVar(&c.json, "json", false, "JSON for scripts on standard output, one document per line")
	c.flags.BoolVarP(&c.quiet, "quiet", "q", false, "no progress and no notes on standard error; errors still")
	c.takesSubscription("only the messages")
}

// usualValues of conditions, for completion. There are others.
var usualValues = map[string][]string{
	"status": {"4xx", "5xx", "none"},
	"reason": {"max_retries", "park_status", "disposition", "too_large", "headers_too_large", "no_route",
		"broker:rejected", "broker:expired", "broker:maxlen", "broker:delivery_limit", "none"},
}

func (c *call) takesConditions() {
	for _, known := range deadletter.Conditions {
		c.flags.Func(known.Name, known.Help, func(value string) error {
			c.condition(known.Name, value)
			return nil // the command reports a mistake
		})
		c.completes(known.Name, usualValues[known.Name])
	}
}

func (c *call) condition(name, value string) {
	err := plainly(c.filter.Set(name, value))
	if err == nil || c.wrong != nil {
		return
	}
	if near := config.Nearest(value, usualValues[name]); near != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, near)
	}
	c.wrong = c.misuse("--%w", err)
}

// plainly is an error without the mark of what kind it is.
func plainly(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(oneLine(err), deadletter.ErrInvalid.Error()+": "))
}

func (c *call) count(n *int, name, usage string) {
	c.flags.Func(name, usage, func(value string) (err error) {
		if *n, err = strconv.Atoi(value); err != nil || *n < 0 {
			return errors.New("want a whole number from 0 on")
		}
		return nil
	})
}

func (c *call) nonempty(text *string, name, usage string) {
	c.flags.Func(name, usage, func(value string) error {
		if *text = value; value == "" {
			return errors.New("must not be empty")
		}
		return nil
	})
}

func (c *call) takesSubscription(what string) {
	c.nonempty(&c.subscription, "subscription", what+" of the subscription `NAME`")
}

// takes declares a flag for each value of an operation that has a help.
func (c *call) takes(operation any) {
	v := reflect.ValueOf(operation).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(strings.ReplaceAll(f.Tag.Get("json"), "_", "-"), ",")
		usage := deadletter.Help[name]
		switch value := v.FieldByIndex(f.Index).Addr().Interface().(type) {
		case *bool:
			c.flags.BoolVar(value, name, false, usage)
		case *int:
			c.count(value, name, usage)
		case encoding.TextUnmarshaler:
			c.flags.Func(name, usage, func(text string) error { return value.UnmarshalText([]byte(text)) })
		}
	}
}

func (c *call) takesActor() {
	c.nonempty(&c.as, "as", "`NAME` of who acts, for the log and for x-redriven-by (default: the user and the host)")
}

// takesAction declares the flags of every action that changes messages.
func (c *call) takesAction() {
	c.takesUsual()
	c.takesConditions()
	c.takesActor()
}

// choose makes the selection of a command line: ids, conditions or --all, and never none of them.
func (c *call) choose(s *deadletter.Selection) error {
	for _, word := range c.words {
		c.condition("id", word)
	}
	if c.wrong != nil {
		return c.wrong
	}
	s.Filter = c.filter
	if err := s.Check(); err != nil {
		return c.misuse("%w", plainly(err))
	}
	return nil
}
