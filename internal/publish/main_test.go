package publish

import (
	"testing"

	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.OneVhost{M: m}) }
