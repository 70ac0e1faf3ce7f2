package config

import (
	"os"
	"syscall"
)

// ofKernel reports whether f belongs to /proc or /sys, where files pass as regular ones.
func ofKernel(f *os.File) bool {
	const proc, sys = 0x9fa0, 0x62656572
	raw, err := f.SyscallConn() // Fd would make a file that can be waited for block
	if err != nil {
		return false
	}
	var fs syscall.Statfs_t
	_ = raw.Control(func(fd uintptr) { _ = syscall.Fstatfs(int(fd), &fs) })
	return fs.Type == proc || fs.Type == sys
}
