package telemetry

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var th Throttle
		var got []int
		for range 21 {
			th.Do(func(suppressed int) { got = append(got, suppressed) })
			time.Sleep(100 * time.Millisecond)
		}
		if len(got) != 3 || got[0] != 0 || got[1] != 9 || got[2] != 9 {
			t.Errorf("%v", got)
		}
	})
}
