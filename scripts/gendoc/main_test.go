package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sidecar/internal/config"
)

var update = flag.Bool("update", false, "rewrite the generated files")

func TestFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	page, err := render("../../internal/config")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"../../docs/configuration.md":                               page,
		"../../deploy/helm/amqp-sidecar-lib/templates/_presets.tpl": presets(),
	} {
		if *update {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the structs say: run go generate ./internal/config", name)
		}
	}
}

// TestExamplesLoad reads the page as its reader does: its sh blocks must be a valid configuration.
func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(preface, -1)
	if len(blocks) < 2 {
		t.Fatalf("found %d examples", len(blocks))
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("value\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		var environ []string
		for line := range strings.Lines(b[1]) {
			line = strings.TrimSpace(line)
			name, _, _ := strings.Cut(line, "=")
			switch {
			case strings.HasSuffix(name, "_CA_FILE"):
				continue
			case strings.HasSuffix(name, "_FILE"):
				line = name + "=" + secret
			}
			environ = append(environ, line)
		}
		if _, err := config.Load(environ, 0); err != nil {
			t.Errorf("%s\n%v", b[1], err)
		}
	}
}

func TestCellMarksUp(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"not starting with 'amq.'":        "not starting with `amq.`",
		"twice SIDECAR_CONCURRENCY":       "twice `SIDECAR_CONCURRENCY`",
		"`SIDECAR_X`, a|b, amq.* and 'c'": "`SIDECAR_X`, a\\|b, amq.\\* and `c`",
	} {
		if got := cell(text); got != want {
			t.Errorf("cell(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestCommentsNeedSources(t *testing.T) {
	t.Parallel()
	if _, err := render(t.TempDir()); err == nil {
		t.Error("a directory without sources is not an error")
	}
	dir := t.TempDir()
	for file, source := range map[string]string{"a.go": "package config\ntype Config struct{ Service int }\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := render(dir); err == nil || !strings.Contains(err.Error(), "Service") {
		t.Errorf("a section without a comment gives %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := render(dir); err == nil {
		t.Error("broken sources are no error")
	}
}
