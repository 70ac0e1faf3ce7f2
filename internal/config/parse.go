package config

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// parsers replace the library's own wherever it is too generous (booleans like "1", numbers with a sign) or says too
// much (its errors repeat the value, which a problem's line does already).
var parsers = map[reflect.Type]env.ParserFunc{
	reflect.TypeFor[int]():           parser(parseInt),
	reflect.TypeFor[float64]():       parser(parseFloat),
	reflect.TypeFor[bool]():          parser(parseBool),
	reflect.TypeFor[time.Duration](): parser(parseDuration),
	reflect.TypeFor[Millis]():        parser(parseMillis),
	reflect.TypeFor[Size]():          parser(parseSize),
	reflect.TypeFor[List]():          parser(parseList),
	reflect.TypeFor[Statuses]():      parser(parseStatuses),
	reflect.TypeFor[Delays]():        parser(parseDelays),
	reflect.TypeFor[Bindings]():      parser(parseBindings),
	reflect.TypeFor[Pairs]():         parser(parseAssignments),
	reflect.TypeFor[Secret]():        parser(parseSecret),
}

func parser[T any](parse func(string) (T, error)) env.ParserFunc {
	return func(v string) (any, error) { return parse(v) }
}

var (
	errInt  = errors.New("not a whole number")
	errBool = errors.New("neither true nor false")
)

func parseInt(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || v[0] == '+' {
		return 0, errInt
	}
	return n, nil
}

func parseFloat(v string) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return 0, errors.New("not a number")
	}
	return f, nil
}

// parseBool takes any case, as the OpenTelemetry specification wants it, and nothing but the two words.
func parseBool(v string) (bool, error) {
	switch {
	case strings.EqualFold(v, "true"):
		return true, nil
	case strings.EqualFold(v, "false"):
		return false, nil
	}
	return false, errBool
}

func parseSecret(v string) (Secret, error) { return literal("", v), nil }

// literal is a secret that stands in the environment.
func literal(name, v string) Secret { return newSecret(&source{name: name, value: v}) }
