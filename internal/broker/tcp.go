package broker

import (
	"context"
	"net"
	"time"
)

// dialTCP connects with keepalive and, where the system has it, a limit on unacknowledged data: without them a peer
// that vanished would be noticed after a quarter of an hour.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control:         limitUnacknowledged,
	}
	return d.DialContext(ctx, "tcp", addr)
}
