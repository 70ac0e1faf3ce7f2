package topologytest

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "48") // whatever was given: these tests wait in retry queues and hardly compute
	goleak.VerifyTestMain(m)
}
