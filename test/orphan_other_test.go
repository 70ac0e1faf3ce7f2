//go:build !linux

package test

import "syscall"

func dieWithTest() *syscall.SysProcAttr { return nil }
