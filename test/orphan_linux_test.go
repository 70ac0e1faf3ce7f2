package test

import "syscall"

// dieWithTest makes a started sidecar end with the test binary, also when that one is killed by its own timeout.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
