// Package docs pastes the commands of the documentation into a shell, block by block, as a reader would. The
// section "Commands in the documentation" of docs/testing.md has the rules for the blocks of a page.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

const root = "../.."

// block is a fenced block of a page.
type block struct {
	page    string // path below the root
	line    int    // of its first line of text
	info    string // the info string of the fence
	comment string // the HTML comment in the line above the fence
	text    string
}

var (
	fence   = regexp.MustCompile("^( *)```(.*)$")
	comment = regexp.MustCompile(`^ *<!-- (.*) -->$`)
	setting = regexp.MustCompile(`^[A-Z_]+=\S*( +#.*)?$`)
)

// pages are the Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-co", "--exclude-standard", "--deduplicate", "--", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(page string) bool {
		_, err := os.Stat(filepath.Join(root, page))
		return err != nil // deleted, and not committed yet
	})
}

// blocksOf returns the blocks of a page, without the indent of their fence.
func blocksOf(t *testing.T, page string) (all []block) {
	t.Helper()
	raw := must.Get(os.ReadFile(filepath.Join(root, page)))(t)
	var open *block
	indent, above := "", ""
	for i, line := range strings.Split(string(raw), "\n") {
		switch m := fence.FindStringSubmatch(line); {
		case open != nil && m != nil:
			all, open = append(all, *open), nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case m != nil:
			indent, open = m[1], &block{page: page, line: i + 2, info: m[2]}
			if c := comment.FindStringSubmatch(above); c != nil {
				open.comment = c[1]
			}
		}
		above = line
	}
	if open != nil {
		t.Errorf("%s:%d: the block does not end", page, open.line)
	}
	return all
}

// runs reports that a block is pasted by TestPaste or TestPasteOthers.
func (b *block) runs() bool {
	return b.info == "sh" && !strings.HasPrefix(b.comment, "not run: ") && !strings.HasPrefix(b.comment, "generated: ")
}

// settings reports that a block holds variables and no command.
func (b *block) settings() bool {
	return !slices.ContainsFunc(strings.Split(strings.TrimSpace(b.text), "\n"), func(line string) bool { return !setting.MatchString(line) })
}

// TestBlocks: every block says what it is, and a transcript begins with the command.
func TestBlocks(t *testing.T) {
	t.Parallel()
	known := strings.Fields("sh console text http yaml json sql go python js mermaid markdown toml ini promql")
	pasted := 0
	for _, page := range pages(t) {
		for _, b := range blocksOf(t, page) {
			if !slices.Contains(known, b.info) {
				t.Errorf("%s:%d: the info string is %q; it must be one of %s", b.page, b.line, b.info, known)
			}
			if b.info == "console" && !strings.HasPrefix(b.text, "$ ") {
				t.Errorf("%s:%d: a transcript (console) begins with `$ ` and a command", b.page, b.line)
			}
			if b.info == "sh" && strings.HasPrefix(b.text, "$ ") {
				t.Errorf("%s:%d: `$ ` cannot be pasted; a transcript is a block console", b.page, b.line)
			}
			if b.runs() && strings.Contains(b.text, "…") {
				t.Errorf("%s:%d: … is no command: use real values", b.page, b.line)
			}
			if b.runs() {
				pasted++
			}
		}
	}
	if pasted < 15 {
		t.Errorf("only %d blocks are pasted: has their form changed?", pasted)
	}
}
