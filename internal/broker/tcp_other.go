//go:build !linux

package broker

import "syscall"

// limitUnacknowledged has nothing to set here: heartbeats and write deadlines notice a silent peer.
func limitUnacknowledged(_, _ string, _ syscall.RawConn) error { return nil }
