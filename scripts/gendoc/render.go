package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sidecar/internal/config"
)

//go:embed preface.md
var preface string

// render makes the page. dir is where the sources of package config are.
func render(dir string) (string, error) {
	said, err := comments(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(preface)
	for _, s := range config.Describe() {
		intro := said["Config."+s.Field]
		if intro == "" {
			return "", fmt.Errorf("describe section %q: Config.%s has no comment", s.Title, s.Field)
		}
		var more strings.Builder
		mark := ""
		if slices.ContainsFunc(s.Variables, func(v *config.Variable) bool { return v.Scoped }) {
			mark = "‡ "
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s%s\n\n| variable | default | allowed | meaning |\n|---|---|---|---|\n",
			s.Title, mark, intro)
		for _, v := range s.Variables {
			meaning := said[s.Field+"."+v.Field]
			if meaning == "" {
				return "", fmt.Errorf("describe %s: %s.%s has no comment", v.Name, s.Field, v.Field)
			}
			name := code(v.Name)
			if v.FileVariant() != "" {
				name += " †"
			}
			if mark != "" && !v.Scoped {
				meaning = "For the whole sidecar. " + meaning
			}
			short, rest := split(meaning)
			if rest != "" {
				fmt.Fprintf(&more, "- %s: %s\n", code(v.Name), rest)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, cell(standard(v)), cell(v.Allowed(code)),
				strings.ReplaceAll(short, "|", `\|`))
		}
		if more.Len() > 0 {
			b.WriteString("\n" + more.String())
		}
	}
	return b.String(), nil
}

// maxWords bounds a cell of a table: the sentences after it are below the table.
const maxWords = 40

func split(meaning string) (short, rest string) {
	sentences := strings.SplitAfter(meaning, ". ")
	n := 1
	for n < len(sentences) && len(strings.Fields(strings.Join(sentences[:n+1], ""))) <= maxWords {
		n++
	}
	return strings.TrimSuffix(strings.Join(sentences[:n], ""), " "), strings.Join(sentences[n:], "")
}

// standard says in words what counts when the variable is not set.
func standard(v *config.Variable) string {
	for _, tag := range []struct{ name, before string }{
		{"preset", "by preset: "}, {"derived", ""}, {"otherwise", ""},
	} {
		if text, found := v.Tag.Lookup(tag.name); found {
			return tag.before + text
		}
	}
	if d, found := v.Tag.Lookup("envDefault"); found {
		return code(d)
	}
	return "–"
}

func code(s string) string { return "`" + s + "`" }

var (
	// Tags cannot hold backquotes: literals are in quotes there, and names of variables are not.
	quoted = regexp.MustCompile(`'([^']+)'`)
	named  = regexp.MustCompile(`\b(SIDECAR|OTEL)_[A-Z_]+\b`)
	spans  = regexp.MustCompile("`[^`]*`")
)

// cell marks up a text from a tag.
func cell(text string) string {
	text = quoted.ReplaceAllString(text, "`$1`")
	plain := spans.Split(text, -1)
	literals := spans.FindAllString(text, -1)
	var b strings.Builder
	for i, p := range plain {
		p = named.ReplaceAllString(p, "`$0`")
		b.WriteString(strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;").Replace(p))
		if i < len(literals) {
			b.WriteString(literals[i])
		}
	}
	return b.String()
}
