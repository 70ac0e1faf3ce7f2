package publish

import (
	"sidecar/internal/brokertest"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.OneVhost{M: m}) }
