package test

import (
	"debug/buildinfo"
	"debug/elf"
	"os/exec"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestReleaseBinaryNeedsNoLibrary: what `make build` makes needs no libc, loads no library, and reveals nothing about the
// machine it was built on.
func TestReleaseBinaryNeedsNoLibrary(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("make", "-C", "..", "build").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const binary = "../bin/sidecar"
	info := must.Get(buildinfo.ReadFile(binary))(t)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
		t.Errorf("built with %v", settings)
	}
	f := must.Get(elf.Open(binary))(t)
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is linked dynamically: %v", p.Type)
		}
	}
}
