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
)

// readRegular reads a whole regular file of at most limit bytes. Symbolic links are followed, because Kubernetes mounts
// every secret as one. Errors name neither the path nor the content.
//
// The type is checked before the file is opened, because opening a device can have effects. O_NONBLOCK, because a named
// pipe that has replaced the file since would block in open until there is a writer.
func readRegular(path string, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, cause(err)
	}
	if kind := irregular(path, info); kind != "" {
		return nil, nil, errors.New("must be a regular file and is " + kind)
	}
	// #nosec G304 -- a path that the operator has configured
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, cause(err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("the file is larger than %v", Size(limit))
	}
	return b, info, cause(err)
}

// irregular says what is not a file to read; "" for one that is. Files of the kernel pass as regular ones, and some,
// such as /proc/kmsg, block when they are read; such a path in the configuration is a mistake.
func irregular(path string, info fs.FileInfo) string {
	path, _ = filepath.Abs(path)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	switch {
	case info.IsDir():
		return "a directory"
	case strings.HasPrefix(path, "/proc/"), strings.HasPrefix(path, "/sys/"):
		return "one of the kernel's"
	case info.Mode().IsRegular():
		return ""
	}
	return "a pipe, a device or a socket"
}

// cause drops the path from an error of package os: a secret in the wrong variable may have become the path.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
