// Package must ends a test at an error it cannot go on with.
package must

import "testing"

// Get returns the value of a call, or ends the test with the call's error: text := must.Get(os.ReadFile(name))(t)
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Do ends the test if there is an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
