package test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// dlqLine finds a command as it is to be typed.
var dlqLine = regexp.MustCompile(`(?m)^(?:\$ )?(sidecar dlq .*)$`)

// TestDLQDocsAreTypedRight: every `sidecar dlq …` that README.md and docs/dead-letters.md give to be typed is
// understood. There is no broker, so each gets as far as that; what deletes asks first, and there is no terminal to ask.
func TestDLQDocsAreTypedRight(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	must.Do(t, os.Symlink(program, filepath.Join(path, "sidecar")))
	env := append(environ(map[string]string{
		"SIDECAR_SERVICE": "wms-cincout", "SIDECAR_AMQP_URL": "amqp://" + freeAddr(t) + "/",
	}), "PATH="+path+":"+os.Getenv("PATH"))
	for file, least := range map[string]int{"../README.md": 3, "../docs/dead-letters.md": 20} {
		lines := dlqLine.FindAllSubmatch(must.Get(os.ReadFile(file))(t), -1)
		if len(lines) < least {
			t.Errorf("%s: %d commands, there were %d", file, len(lines), least)
		}
		for _, line := range lines {
			typeIn(t, env, string(line[1]))
		}
	}
}

// typeIn runs one line in a directory that holds what an import would read.
func typeIn(t *testing.T, env []string, line string) {
	t.Helper()
	dir := t.TempDir()
	for word := range strings.FieldsSeq(line) {
		if strings.HasPrefix(line, "sidecar dlq import") && strings.HasSuffix(word, ".jsonl") {
			must.Do(t, os.WriteFile(filepath.Join(dir, word), nil, 0o600))
		}
	}
	var stderr bytes.Buffer
	shell := exec.CommandContext(t.Context(), "sh", "-c", line)
	shell.Dir, shell.Env, shell.Stderr = dir, env, &stderr
	err := shell.Run()
	asks := strings.HasPrefix(line, "sidecar dlq discard") && !strings.Contains(line, "--yes") && !strings.Contains(line, "--dry-run")
	code, says := 1, "the broker cannot be reached"
	if asks {
		code, says = 64, "say so with --yes"
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != code || !strings.Contains(stderr.String(), says) {
		t.Errorf("%s: %v, want %d and %q:\n%s", line, err, code, says, stderr.String())
	}
}
