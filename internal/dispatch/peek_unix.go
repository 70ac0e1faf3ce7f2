//go:build unix

package dispatch

import "syscall"

// glimpse is what a look at an idle socket showed.
type glimpse uint8

const (
	glimpseNothing glimpse = iota // open, no bytes waiting
	glimpseBytes                  // somebody spoke out of turn
	glimpseEnd                    // closed by the app, or broken
)

// peek looks at a socket without taking anything from it and without blocking.
func peek(fd uintptr) glimpse {
	var b [1]byte
	for {
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return glimpseNothing
		case err == nil && n > 0:
			return glimpseBytes
		}
		return glimpseEnd
	}
}
