//go:build unix

package main

import (
	"cmp"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth returns how many columns the terminal of a stream has. ok is false when it is not a terminal: /dev/null
// is a character device too, but has no size.
func terminalWidth(stream any) (columns int, ok bool) {
	if w, ok := stream.(io.Writer); ok {
		stream = raw(w)
	}
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ) //nolint:gosec // a file descriptor is a small number
	if err != nil {
		return 0, false
	}
	return cmp.Or(int(size.Col), 80), true // some do not report their width
}
