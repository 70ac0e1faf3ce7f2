package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
	switch {
	case info.IsDir():
		return nil, nil, errors.New("must be a regular file and is a directory")
	case !info.Mode().IsRegular():
		return nil, nil, errors.New("must be a regular file and is a pipe, a device or a socket")
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

// cause drops the path from an error of package os: a secret in the wrong variable may have become the path.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
