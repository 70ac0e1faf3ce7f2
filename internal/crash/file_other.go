//go:build !unix

package crash

import "os"

// openLocked makes a new journal: without locks nobody knows whose an old one is.
func openLocked(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}
