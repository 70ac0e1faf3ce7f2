//go:build unix

package http1

import "syscall"

// silent reports whether a socket is open and has nothing to read, without taking anything from it and without
// blocking. A closed one, like one with bytes, would return at once from a read.
func silent(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN
}
