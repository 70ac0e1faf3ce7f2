//go:build !linux

package config

import "os"

func ofKernel(*os.File) bool { return false }
