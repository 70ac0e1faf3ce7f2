package broker

import (
	"net"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/amqpwire"
	"sidecar/internal/testkit/must"
)

// A peer that vanished while we wait to send is found by TCP_USER_TIMEOUT, one that vanished while we are silent by
// keepalive, and both before a minute is over: heartbeats alone do not cover the handshake of a slow broker.
func TestSocketGivesAVanishedPeerUp(t *testing.T) {
	t.Parallel()
	c := must.Get(dialTCP(t.Context(), brokerAddr(t)))(t)
	defer amqpwire.CloseNow(c)
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		t.Fatalf("a %T", c)
	}
	raw := must.Get(tcp.SyscallConn())(t)
	for name, want := range map[string]struct{ level, option, value int }{
		"TCP_USER_TIMEOUT, ms": {syscall.IPPROTO_TCP, tcpUserTimeout, int(30 * time.Second / time.Millisecond)},
		"SO_KEEPALIVE":         {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE, s":      {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 15},
		"TCP_KEEPINTVL, s":     {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 5},
		"TCP_KEEPCNT":          {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
	} {
		got, failed := 0, error(nil)
		if err := raw.Control(func(fd uintptr) {
			got, failed = syscall.GetsockoptInt(int(fd), want.level, want.option)
		}); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if got != want.value {
			t.Errorf("%s is %d, want %d", name, got, want.value)
		}
	}
}

func brokerAddr(t *testing.T) string {
	t.Helper()
	return must.Get(NewDialer(options(t)).targets())(t)[0].addr()
}
