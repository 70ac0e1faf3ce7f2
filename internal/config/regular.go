package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// readPatience bounds the read of a file that has nothing to read yet.
const readPatience = time.Second

// readRegular reads a whole regular file of at most limit bytes. Symbolic links are followed, because Kubernetes mounts
// every secret as one. Errors name neither the path nor the content.
//
// A named pipe blocks in open until there is a writer, and a device never ends: the type is checked before the file is
// opened, O_NONBLOCK covers a change in between, and the check is repeated on the opened file. Files of the kernel,
// such as /proc/kmsg, pass as regular ones and may block, too; such a path in the configuration is a mistake.
func readRegular(path string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, nil, cause(err)
	}
	// #nosec G304 -- a path that the operator has configured
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, cause(err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if info, err = f.Stat(); err == nil {
		err = checkRegular(info)
	}
	resolved, _ := filepath.Abs(path)
	if target, linkErr := filepath.EvalSymlinks(resolved); linkErr == nil {
		resolved = target
	}
	if err == nil && (strings.HasPrefix(resolved, "/proc/") || strings.HasPrefix(resolved, "/sys/")) {
		err = errors.New("must be a regular file and is one of the kernel's")
	}
	var b []byte
	if err == nil {
		b, err = readAll(f, limit, readPatience)
	}
	if err != nil {
		return nil, nil, cause(err)
	}
	return b, info, nil
}

// readAll reads at most limit bytes. patience bounds the wait for more of them; a plain file needs no wait and takes no
// deadline.
func readAll(f *os.File, limit int64, patience time.Duration) ([]byte, error) {
	_ = f.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("the file is larger than %v", Size(limit))
	}
	return b, err
}

func checkRegular(info fs.FileInfo) error {
	kind := "something else"
	switch m := info.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		kind = "a directory"
	case m&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case m&fs.ModeDevice != 0:
		kind = "a device"
	case m&fs.ModeSocket != 0:
		kind = "a socket"
	}
	return fmt.Errorf("must be a regular file and is %s", kind)
}

// cause drops the path from an error of package os: a secret in the wrong variable may have become the path.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
