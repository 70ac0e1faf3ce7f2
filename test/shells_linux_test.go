package test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestCompletion: keys that a user presses in each shell become the words of a command that then runs.
func TestCompletion(t *testing.T) {
	t.Parallel()
	const prompt = "your-turn>"
	for shell, c := range map[string]struct {
		args   []string
		source string
	}{
		"bash": {[]string{"--norc", "--noprofile", "-i"}, "source <(sidecar completion bash)"},
		"zsh":  {[]string{"-f", "-i"}, "autoload -U compinit; compinit -u; source <(sidecar completion zsh)"},
		"fish": {[]string{"--no-config", "-C", "function fish_prompt; echo '" + prompt + "'; end"}, "sidecar completion fish | source"},
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			must.Do(t, os.Symlink(program, filepath.Join(home, "sidecar")))
			must.Do(t, os.WriteFile(filepath.Join(home, "parked.jsonl"), nil, 0o600))
			cmd := exec.Command(must.Get(exec.LookPath(shell))(t), c.args...)
			cmd.Dir = home
			env := valid()
			maps.Copy(env, map[string]string{
				"PATH": home + ":" + os.Getenv("PATH"), "HOME": home, "PS1": prompt, "TERM": "xterm", "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home,
			})
			x := commandOnTerminal(t, 100, cmd, env)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%q", x.seen())
				}
			})
			x.await(prompt)
			for _, step := range []struct{ keys, shows string }{
				{c.source + "; echo so\"\"urced\r", "sourced"},
				{"sidecar expl\t--fail\ttim\t\r", "timeout at retry 0 of 10"},
				{"sidecar explain --failure=ref\t\r", "refused at retry 0 of 10"},
				{"sidecar vers\t--js\t\r", `{"commit":`},
				{"sidecar dlq \t\t", "discard"},
				{"\x15sidecar dlq import --skip 7 par\t", "ked.jsonl"},
				{"\x15sidecar dlq list --status=\t\t", "none"},
				{"\x15sidecar help outbox mig\t\r", "usage: sidecar outbox migrate"},
			} {
				before := len(x.seen())
				x.press(step.keys)
				eventually(t, step.keys+" shows "+step.shows, func() bool { return strings.Contains(x.seen()[before:], step.shows) })
			}
			x.press("exit\r")
			x.ends(0)
		})
	}
}

// TestManualPage: mandoc finds nothing wrong with it, and shows it.
func TestManualPage(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "sidecar.1")
	must.Do(t, os.WriteFile(page, []byte(command(t, nil, "man").stdout), 0o600))
	// It has no date: the same sources give the same bytes.
	out, _ := exec.CommandContext(t.Context(), "mandoc", "-Tlint", "-Wwarning", page).CombinedOutput()
	if strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "missing date") {
		t.Errorf("%s", out)
	}
	shown := must.Get(exec.CommandContext(t.Context(), "mandoc", "-Tutf8", page).Output())(t)
	text := regexp.MustCompile(".\x08").ReplaceAllString(string(shown), "") // bold is a letter twice
	for _, want := range []string{"sidecar dlq redrive --canary 3 --group 5b7c0d1e9f24", "EXIT STATUS", "SIDECAR_SERVICE", "--older VALUE"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestInstall: make install puts the program, its page and the completions where other programs search for them, and make
// uninstall removes them.
func TestInstall(t *testing.T) {
	t.Parallel()
	dest := t.TempDir()
	run := func(target string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "make", "-C", "..", target, "DESTDIR="+dest, "PREFIX=/usr", "OUT="+program)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
	}
	run("install")
	for file, beginning := range map[string]string{
		"bin/sidecar": "\x7fELF", "share/man/man1/sidecar.1": ".TH SIDECAR 1", "share/bash-completion/completions/sidecar": "# Completion",
		"share/zsh/site-functions/_sidecar": "#compdef sidecar\n", "share/fish/vendor_completions.d/sidecar.fish": "# Completion",
	} {
		if b := must.Get(os.ReadFile(filepath.Join(dest, "usr", file)))(t); !strings.HasPrefix(string(b), beginning) {
			t.Errorf("%s begins with %.40q", file, b)
		}
	}
	run("uninstall")
	must.Do(t, filepath.WalkDir(dest, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s is left", path)
		}
		return err
	}))
}

// TestColours: a terminal that has colours gets some, unless the user has something against them; a pipe gets none, and
// the text is the same.
func TestColours(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a")
	for line, painted := range map[string][]string{
		"dlq list": {"\x1b[1mREF ", "\x1b[33m  max_retries\x1b[0m"},
		"check":    {"\x1b[32mok\x1b[0m  "},
		"dlq lits": {"\x1b[31msidecar:\x1b[0m no command"},
	} {
		args := strings.Fields(line)
		plain := regexp.MustCompile("\x1b\\[[0-9]+m|[0-9]+s ago|now   ?")
		env := map[string]string{"TERM": "xterm"}
		maps.Copy(env, sc.env)
		piped := command(t, env, args...)
		shown := func(name, value string) string {
			env[name] = value
			x := onTerminal(t, 200, env, args...)
			x.ends(piped.code)
			return x.seen()
		}
		seen := shown("NO_COLOR", "")
		for _, want := range painted {
			if !strings.Contains(seen, want) {
				t.Errorf("no %q in %q", want, seen)
			}
		}
		want := plain.ReplaceAllString(piped.all(), "")
		if got := plain.ReplaceAllString(seen, ""); got != want || strings.Contains(piped.all(), "\x1b") {
			t.Errorf("the text is %q, in a file %q", got, piped.all())
		}
		for _, off := range [][2]string{{"NO_COLOR", "1"}, {"TERM", "dumb"}} {
			env["NO_COLOR"] = ""
			if got := shown(off[0], off[1]); strings.Contains(got, "\x1b") {
				t.Errorf("%s: %q", off, got)
			}
		}
	}
}
