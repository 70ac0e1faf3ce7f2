package topologytest

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// seed chooses what a run leaves out. "all" leaves out nothing, as in make soak.
var seed = cmp.Or(os.Getenv("TOPOLOGY_SEED"), strconv.Itoa(rand.IntN(10_000)))

// drawn reports whether a run takes a check: one of share of them.
func drawn(check string, share uint32) bool {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, seed, check)
	return seed == "all" || h.Sum32()%share == 0
}

func TestMain(m *testing.M) {
	flag.Parse()
	fmt.Printf("replay: TOPOLOGY_SEED=%s go test ./internal/topologytest\n", seed)
	_ = flag.Set("test.parallel", "24") // whatever was given: these tests wait in retry queues and hardly compute
	goleak.VerifyTestMain(m)
}
