//go:build unix

package crash

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openLocked opens or makes a journal that no other process has open. The directory may be open to all users: links are
// not followed, and what is not a file of our own is refused. The lock goes with the process, however it ends.
func openLocked(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | syscall.O_NOFOLLOW | syscall.O_NONBLOCK // a FIFO must not block
	// #nosec G304 -- in the directory that the configuration names
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		sys, ok := info.Sys().(*syscall.Stat_t)
		if !info.Mode().IsRegular() || ok && (int(sys.Uid) != os.Geteuid() || sys.Nlink > 1) {
			err = errForeign
		} else if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
			err = errInUse
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
