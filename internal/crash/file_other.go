//go:build !unix

package crash

import "os"

// openLocked makes a new journal: without locks it is unknown whether an old one is in use.
func openLocked(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}
