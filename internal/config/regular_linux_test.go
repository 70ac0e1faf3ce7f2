package config

import "testing"

// TestKernelFiles: files of /proc and /sys pass as regular ones, and some of them block. The first cannot be opened,
// even by root.
func TestKernelFiles(t *testing.T) {
	t.Parallel()
	for path, says := range map[string]string{
		"/proc/sys/net/ipv4/route/flush": "kernel's", "/proc/kmsg": "", "/proc/self/mem": "kernel's", "/proc/self/environ": "kernel's",
		"/sys/kernel/mm/transparent_hugepage/enabled": "kernel's",
	} {
		refuseSaying(t, says, "SIDECAR_AMQP_PASSWORD_FILE", "SIDECAR_AMQP_PASSWORD_FILE="+path)
	}
}

// TestKernelFilesByARelativePath: the path of a secret may begin at the working directory.
func TestKernelFilesByARelativePath(t *testing.T) {
	t.Chdir("/")
	for _, path := range []string{"proc/version", "sys/kernel/mm/transparent_hugepage/enabled"} {
		if _, _, err := readRegular(path, 1<<10); err == nil {
			t.Errorf("%s is read as a regular file", path)
		}
	}
}
