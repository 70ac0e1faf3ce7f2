package test

import (
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// patience is how long a test waits for something that must happen. It bounds a failing run and is no claim about
// speed: a loaded machine may take nearly all of it.
const patience = time.Minute

// eventually waits until cond holds and fails the test when it does not within patience.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	brokertest.Eventually(t, patience, what, cond)
}

// stays watches for a while that cond goes on holding: for things that must not happen.
func stays(t testing.TB, watch time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(watch); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !cond() {
			t.Fatalf("did not stay: %s", what)
		}
	}
}
