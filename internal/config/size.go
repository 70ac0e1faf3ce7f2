package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

var errSize = errors.New("not a size: a whole number of bytes, or one followed by KiB, MiB or GiB")

// parseSize reads "16MiB" or "1048576". MB and friends are refused rather than taken for one of their two meanings.
func parseSize(v string) (Size, error) {
	unit := int64(1)
	for _, u := range sizeUnits {
		if digits, found := strings.CutSuffix(v, u.suffix); found {
			v, unit = digits, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		return 0, errSize
	}
	if int64(n) > math.MaxInt64/unit {
		return 0, errSize
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
