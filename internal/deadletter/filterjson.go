package deadletter

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxConditions bounds the values of a request over HTTP.
const maxConditions = 1000

// SetAll adds the conditions of a request over HTTP, by their names.
func (f *Filter) SetAll(conditions map[string][]string) error {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(conditions)) {
		if total += len(conditions[name]); total > maxConditions {
			return fmt.Errorf("%w: there are more than %d conditions", ErrInvalid, maxConditions)
		}
		for _, value := range conditions[name] {
			if err := f.Set(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// texts is a JSON string, or an array of them.
type texts []string

// UnmarshalJSON reads either form. An empty array is refused: it could be taken for any value, or for none.
func (t *texts) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = texts{s}
		return nil
	}
	var list []string
	if json.Unmarshal(b, &list) != nil || len(list) == 0 {
		return errors.New("a condition is a text or a list of texts")
	}
	*t = list
	return nil
}

// UnmarshalJSON reads an object of conditions.
func (f *Filter) UnmarshalJSON(b []byte) error {
	var all map[string]texts
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	conditions := make(map[string][]string, len(all))
	for name, values := range all {
		conditions[name] = values
	}
	if err := f.SetAll(conditions); err != nil { // the class is said by the caller
		return errors.New(strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
	}
	return nil
}

// MarshalJSON writes what was given.
func (f Filter) MarshalJSON() ([]byte, error) { return json.Marshal(f.given) }

// IsZero is Empty, for encoding/json.
func (f Filter) IsZero() bool { return f.Empty() }

// IDs returns the values of the condition id.
func (f *Filter) IDs() []string { return f.given["id"] }
