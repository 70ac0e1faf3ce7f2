package admin

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// content is that of an embedded file.
func content(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(embedded.ReadFile(name))(t))
}

// TestPageFiles: the page is whole, small, and has nothing that its policy would stop or that would make markup of
// text.
func TestPageFiles(t *testing.T) {
	t.Parallel()
	files := consoleFiles()
	total := 0
	for at, name := range files {
		body := content(t, name)
		total += len(body)
		if contentTypes[path.Ext(name)] == "" {
			t.Errorf("%s has no type", at)
		}
		if n := strings.Count(body, "\n"); n > 300 {
			t.Errorf("%s has %d lines", at, n)
		}
		text := strings.ReplaceAll(body, "http://www.w3.org/2000/svg", "")
		for _, never := range []string{
			"://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc", "javascript:",
			"<style", " style=", "<script>", "@import", "setTimeout('", "localStorage", "document.cookie", "DOMParser", "setHTML",
		} {
			if strings.Contains(text, never) {
				t.Errorf("%s holds %s", at, never)
			}
		}
		if on := regexp.MustCompile(`<[^>]* on[a-z]+=`).FindString(text); on != "" {
			t.Errorf("%s has a handler in its markup: %s", at, on)
		}
		for _, m := range regexp.MustCompile(`(?:from|src=|href=) ?["']([^"'#][^"']*)["']`).FindAllStringSubmatch(text, -1) {
			if _, ok := files[path.Join(path.Dir(at), m[1])]; !ok {
				t.Errorf("%s asks for %s, which is not there", at, m[1])
			}
		}
	}
	if files["/"] == "" || files["/console.js"] == "" || files["/console.css"] == "" || len(files) < 10 {
		t.Errorf("%d files", len(files))
	}
	if total > 112<<10 {
		t.Errorf("%d bytes are much for a page", total)
	}
	t.Logf("%d files, %d bytes", len(files), total)
}

// TestPageIDs: what the scripts search for by its id is in the page.
func TestPageIDs(t *testing.T) {
	t.Parallel()
	files := consoleFiles()
	page := content(t, files["/"])
	asked := 0
	for at, name := range files {
		for _, m := range regexp.MustCompile(`byId\('([^']+)'\)`).FindAllStringSubmatch(content(t, name), -1) {
			if asked++; strings.Count(page, ` id="`+m[1]+`"`) != 1 {
				t.Errorf("%s searches for %s, which is not in the page once", at, m[1])
			}
		}
	}
	if asked < 50 {
		t.Errorf("only %d ids are searched for", asked)
	}
}
