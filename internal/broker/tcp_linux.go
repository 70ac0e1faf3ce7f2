package broker

import (
	"cmp"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 0x12

// unacknowledged is how long sent data may stay without an acknowledgement before the kernel gives the connection up.
const unacknowledged = 30 * time.Second

func limitUnacknowledged(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unacknowledged/time.Millisecond))
	})
	return cmp.Or(err, failed)
}
