package config

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// parsers replace the library's own wherever it is too generous (booleans like "1", numbers with a sign) or says too
// much: their errors do not repeat the value, which a problem's line does.
var parsers = map[reflect.Type]env.ParserFunc{
	reflect.TypeFor[int]():               parser(parseInt),
	reflect.TypeFor[float64]():           parser(parseShare),
	reflect.TypeFor[bool]():              parser(parseBool),
	reflect.TypeFor[time.Duration]():     parser(parseDuration),
	reflect.TypeFor[Millis]():            parser(parseMillis),
	reflect.TypeFor[Size]():              parser(ParseSize),
	reflect.TypeFor[Rate]():              parser(parseRate),
	reflect.TypeFor[[]string]():          parser(split),
	reflect.TypeFor[[]int]():             parser(parseStatuses),
	reflect.TypeFor[[]time.Duration]():   parser(parseDelays),
	reflect.TypeFor[[]Binding]():         parser(parseBindings),
	reflect.TypeFor[map[string]string](): parser(parsePairs),
	reflect.TypeFor[Secret]():            parser(func(string) (Secret, error) { return Secret{}, nil }), // see readSecret
}

func parser[T any](parse func(string) (T, error)) env.ParserFunc {
	return func(v string) (any, error) { return parse(v) }
}

// parse fills the struct of the section, and leaves in each variable why its text could not be parsed. A section at a
// time: the library's errors name the field, which is unique in one struct only.
func (s *Section) parse() {
	// Never nil, and nothing in it that is not ours: with a nil map the library reads the process's environment.
	environment := map[string]string{}
	for _, v := range s.Variables {
		if v.text != "" {
			environment[v.Name] = v.text
		}
	}
	err := env.ParseWithOptions(s.target, env.Options{Environment: environment, Prefix: s.prefix, FuncMap: parsers})
	all, _ := errors.AsType[env.AggregateError](err)
	for _, err := range all.Errors {
		wrong, ok := errors.AsType[env.ParseError](err)
		if !ok { // a struct this package got wrong; its tests find that
			panic(err)
		}
		i := slices.IndexFunc(s.Variables, func(v *Variable) bool { return v.Field == wrong.Name })
		s.Variables[i].wrong = wrong.Err
	}
}

func parseInt(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || v[0] == '+' {
		return 0, errors.New("not a whole number")
	}
	return n, nil
}

func parseShare(v string) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	switch {
	case err != nil:
		return 0, errors.New("not a number")
	case !(f >= 0 && f <= 1): // not "f < 0 || f > 1": NaN must fail too
		return 0, errors.New("out of range")
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
	return false, errors.New("neither true nor false")
}

var errDuration = errors.New("not a duration: a number with a unit, such as 500ms, 30s, 5m or 1h30m")

// parseDuration refuses a bare number, 0 included: 5 may mean seconds or milliseconds.
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

func parseMillis(v string) (Millis, error) {
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return 0, errors.New("not a whole number of milliseconds")
	}
	return Millis(time.Duration(n) * time.Millisecond), nil
}

// Size is a number of bytes.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseSize reads "16MiB" or "1048576". MB and friends are refused rather than taken for one of their two meanings.
func ParseSize(v string) (Size, error) {
	unit := int64(1)
	for _, u := range sizeUnits {
		if digits, found := strings.CutSuffix(v, u.suffix); found {
			v, unit = digits, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return 0, errors.New("not a size: a whole number of bytes, or one followed by KiB, MiB or GiB")
	}
	return Size(int64(n) * unit), nil
}

// String returns the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Rate is a number of messages per second.
type Rate float64

// parseRate reads "100/s", "30/m" or "5/h".
func parseRate(v string) (Rate, error) {
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}
	digits, unit, _ := strings.Cut(v, "/")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n < 1 || n > 1_000_000 || seconds[unit] == 0 {
		return 0, errors.New("not a rate, such as 100/s, 30/m or 5/h")
	}
	return Rate(float64(n) / seconds[unit]), nil
}
