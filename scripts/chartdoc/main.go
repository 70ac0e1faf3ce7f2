// Command chartdoc writes the tables of values into the README of a Helm chart, from the comments in its values.yaml: a
// line "# -- text" explains the key below it, other comments above a top-level key introduce its section. It is run by
// go generate and is not part of the sidecar.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

//go:generate go run . ../../deploy/helm/amqp-sidecar

const begin, end = "<!-- values -->\n", "<!-- end -->\n"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chartdoc CHART")
		os.Exit(2)
	}
	readme, err := render(os.Args[1])
	if err == nil {
		// #nosec G306 G703 -- documentation is for all users, and goes where "go generate" says
		err = os.WriteFile(filepath.Join(os.Args[1], "README.md"), []byte(readme), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chartdoc:", err)
		os.Exit(1)
	}
}

// render is the README of a chart with its tables as values.yaml has them now.
func render(chart string) (string, error) {
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml")) // #nosec G304 G703 -- what "go generate" says
	if err != nil {
		return "", fmt.Errorf("read the values: %w", err)
	}
	readme, err := os.ReadFile(filepath.Join(chart, "README.md")) // #nosec G304 G703 -- what "go generate" says
	if err != nil {
		return "", fmt.Errorf("read the page: %w", err)
	}
	before, rest, found := strings.Cut(string(readme), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("README.md has no %q followed by %q", begin, end)
	}
	sections, err := parse(string(values))
	if err != nil {
		return "", err
	}
	return before + begin + tables(sections) + end + after, nil
}

// tables are one for every section, and one at the end for the keys of the top level that are not maps.
func tables(sections []section) string {
	var b strings.Builder
	var alone []key
	for _, s := range sections {
		if s.title == "" {
			alone = append(alone, s.keys...)
			continue
		}
		table(&b, s)
	}
	table(&b, section{title: "The pod and its objects", keys: alone})
	b.WriteString("\n")
	return b.String()
}

func table(b *strings.Builder, s section) {
	fmt.Fprintf(b, "\n### %s\n", s.title)
	if s.intro != "" {
		fmt.Fprintf(b, "\n%s\n", s.intro)
	}
	b.WriteString("\n| value | default | |\n|---|---|---|\n")
	for _, k := range s.keys {
		value, text := k.split()
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", k.path, value, strings.ReplaceAll(text, "|", `\|`))
	}
}

// comes is what an empty value comes to, in brackets at the end of an explanation.
var comes = regexp.MustCompile(` ?\[([^\[\]]*)\]$`)

// split is the default as people read it, and the rest of the explanation.
func (k key) split() (value, text string) {
	switch k.value {
	case `""`, "[]", "{}", "null":
		if m := comes.FindStringSubmatchIndex(k.text); m != nil {
			return strings.NewReplacer("*", `\*`, "|", `\|`).Replace(k.text[m[2]:m[3]]), k.text[:m[0]]
		}
		return "", k.text
	}
	return "`" + strings.ReplaceAll(strings.Trim(k.value, `"`), "|", `\|`) + "`", k.text
}
