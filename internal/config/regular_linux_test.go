package config

import (
	"testing"
)

// TestRegularFilesThatCannotBeRead takes two that fail for root too, as tests often run as root: a write-only switch of
// the kernel cannot be opened, and nothing is mapped at address 0.
func TestRegularFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for path, says := range map[string]string{
		"/proc/sys/net/ipv4/route/flush": "permission denied", "/proc/self/mem": "input/output error",
	} {
		refuseSaying(t, says, "SIDECAR_AMQP_PASSWORD_FILE", "SIDECAR_AMQP_PASSWORD_FILE="+path)
	}
}
