// Package micro keeps the baseline of the Go benchmarks. Its test is of the script that compares with it.
package micro

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// results is what a run of the benchmarks printed: each of allocs is one run of BenchmarkB.
func results(cpu string, bytes int, allocs ...int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "go: go1.26.0\ngoos: linux\ngoarch: amd64\npkg: sidecar/internal/a\ncpu: %s\n", cpu)
	b.WriteString("BenchmarkA/same-2 \t 1000 \t 10.5 ns/op \t 0 B/op \t 0 allocs/op\n")
	b.WriteString("pkg: sidecar/internal/b\n")
	for i, n := range allocs {
		fmt.Fprintf(&b, "BenchmarkB/case-2 \t 1000 \t %d ns/op \t 0.5 frames/op \t %d B/op \t %d allocs/op\n", 100+i, bytes, n)
	}
	return b.String()
}

// compare runs the script on two results, with something in benchstat's place that needs no download.
func compare(t *testing.T, baseline, now string) (out string, code int) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "baseline.txt")
	measured := filepath.Join(dir, "now.txt")
	for path, text := range map[string]string{file: baseline, measured: now} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), "../../scripts/bench-compare.sh")
	c.Env = append(os.Environ(), "PKG=", "UPDATE=", "BASELINE="+file, "COMPARE_WITH="+measured, "BENCHSTAT=true")
	b, err := c.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(b), failed.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b), 0
}

func TestOnlyAllocationsDecide(t *testing.T) {
	t.Parallel()
	const grew = "ALLOCS/OP GREW: sidecar/internal/b BenchmarkB/case-2: 2 to 3\n"
	was := results("x", 100, 2, 2, 2, 2)
	for name, c := range map[string]struct {
		baseline, now string
		code          int
		says          string // "" for nothing but the tables
	}{
		"the same":              {was, was, 0, ""},
		"more":                  {was, results("x", 100, 3, 3, 4, 3), 1, grew},
		"the first ones":        {results("x", 0, 0, 0), results("x", 0, 1, 1), 1, "BenchmarkB/case-2: 0 to 1\n"},
		"one run was disturbed": {was, results("x", 100, 3, 2, 9, 3), 0, ""},
		"more bytes":            {was, results("x", 200, 2, 2, 2, 2), 0, "B/op grew: sidecar/internal/b BenchmarkB/case-2: 100 to 200\n"},
		"another processor":     {was, results("y", 100, 2, 2, 2, 2), 0, "times: the baseline is of another processor (x, here y)"},
		"another Go":            {was, strings.Replace(was, "go1.26.0", "go1.27.0", 1), 0, "times: the baseline is of another Go (go1.26.0, here go1.27.0)"},
		"a new one":             {was, was + "BenchmarkC-2 1 1 ns/op 0 B/op 9 allocs/op\n", 0, "new, not in the baseline: sidecar/internal/b BenchmarkC-2\n"},
		"one less":              {was, results("x", 100) + "BenchmarkC-2 1 1 ns/op 0 B/op 9 allocs/op\n", 0, "gone, only in the baseline: sidecar/internal/b BenchmarkB/case-2\n"},
		"no baseline":           {"", was, 64, "UPDATE=1 makes it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code := compare(t, c.baseline, c.now)
			if code != c.code || !strings.Contains(out, c.says) || c.says == "" && out != "" {
				t.Errorf("exit %d, want %d, and said %q, want %q", code, c.code, out, c.says)
			}
		})
	}
}
