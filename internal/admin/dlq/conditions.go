package dlq

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sidecar/internal/deadletter"
)

// maxConditions bounds how many values a filter has.
const maxConditions = 1000

// conditions are those of a deadletter.Filter by their names, as a request gives them.
type conditions map[string]texts

// texts is a JSON string, or an array of them.
type texts []string

// UnmarshalJSON reads either form.
func (t *texts) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = texts{s}
		return nil
	}
	var list []string
	if json.Unmarshal(b, &list) != nil {
		return errors.New("a condition is a text or a list of texts")
	}
	*t = list
	return nil
}

// single are the conditions that have one value: another one would replace it.
var single = []string{"older", "newer", "error", "group"}

// read makes a filter. An error is deadletter.ErrInvalid.
func (c conditions) read() (f deadletter.Filter, err error) {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if total += len(c[name]); total > maxConditions {
			return f, fmt.Errorf("%w: there are more than %d conditions", deadletter.ErrInvalid, maxConditions)
		}
		if len(c[name]) > 1 && slices.Contains(single, name) {
			return f, fmt.Errorf("%w: %s can be given once", deadletter.ErrInvalid, name)
		}
		if !slices.ContainsFunc(deadletter.Conditions, func(known [2]string) bool { return known[0] == name }) {
			return f, fmt.Errorf("%w: unknown condition %.100q", deadletter.ErrInvalid, name)
		}
		for _, value := range c[name] {
			if err := f.Set(name, value); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}
