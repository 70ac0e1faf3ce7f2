package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"io"
	"regexp"
	"slices"
	"strings"
)

// shellFiles are the scripts for completion, and the manual page without its commands.
//
//go:embed shell
var shellFiles embed.FS

// completion prints the script of a shell. The scripts call it again, with "candidates" and the words of the command
// line, for the words that may come next.
func completion(_ context.Context, c *call) error {
	if err := c.parse(-1); err != nil {
		return err
	}
	if len(c.words) > 1 && c.words[0] == "candidates" {
		for _, t := range c.candidates(c.words[1:]) {
			c.say("%s", strings.TrimRight(t.name+"\t"+t.text, "\t"))
		}
		return c.out.Flush()
	}
	shells := argumentWords(c.arguments)
	if len(c.words) != 1 || !slices.Contains(shells, c.words[0]) {
		return c.misuse("want the name of a shell; %s", suggestion(strings.Join(c.words, " "), shells))
	}
	script, err := shellFiles.ReadFile("shell/sidecar." + c.words[0])
	_, writeErr := c.stdout.Write(script)
	return errors.Join(err, writeErr)
}

// described runs the command with --help, which stops it after its flags, or the commands below it, are declared.
func described(s subcommand, above string, help io.Writer) *call {
	c := newCall(invocation{args: []string{"--help"}, stdout: help}, above, s)
	_ = s.run(context.Background(), c) // flag.ErrHelp
	return c
}

// candidates returns what the last word of a command line may become, or the name ":files" where a file is meant.
func (c *call) candidates(line []string) (found []term) {
	words, last := line[:len(line)-1], strings.TrimPrefix(line[len(line)-1], "=")
	words = slices.DeleteFunc(words, func(word string) bool { return word == "=" }) // bash splits at =
	at := described(*c.root, "", io.Discard)
	for ; at.group != nil && len(words) > 0; words = words[1:] {
		if words[0] == "help" {
			continue
		}
		i := slices.IndexFunc(at.group.commands, func(s subcommand) bool { return s.name == words[0] })
		if i < 0 {
			return nil
		}
		at = described(at.group.commands[i], at.flags.Name(), io.Discard)
	}
	for _, t := range at.nextWords(append([]string{""}, words...), last) {
		if strings.HasPrefix(t.name, last) || t.name == ":files" {
			found = append(found, t)
		}
	}
	return found
}

// nextWords returns what may follow words behind the name of a command; last is the word that is being typed.
func (c *call) nextWords(words []string, last string) (found []term) {
	flagsEnd := slices.Contains(words, "--")
	if name, _, given := strings.Cut(last, "="); given && !flagsEnd {
		found, _ = c.values(name, name+"=")
		return found
	}
	if found, takes := c.values(words[len(words)-1], ""); takes && !flagsEnd {
		return found
	}
	isFlag := strings.HasPrefix(last, "-") && !flagsEnd
	found = c.subcommands()
	for _, word := range argumentWords(c.arguments) {
		found = append(found, term{word, ""})
	}
	if strings.Contains(c.arguments, "FILE") && !isFlag {
		found = append(found, term{":files", ""})
	}
	if isFlag || len(found) == 0 && !flagsEnd {
		flags, conditions := c.terms()
		if c.group != nil {
			conditions = nil // they are for the commands below
		}
		for _, t := range append(flags, conditions...) {
			name, _, _ := strings.Cut(strings.TrimSuffix(t.name, ", -q"), " ")
			found = append(found, term{name, t.text})
		}
		found = append(found, term{"--help", "what the command does, with its flags and examples"})
	}
	return found
}

// values returns the known values of a flag; takes is false for a word that is not a flag with a value.
func (c *call) values(name, prefix string) (found []term, takes bool) {
	f := c.flags.Lookup(strings.TrimLeft(name, "-"))
	if f == nil || !strings.HasPrefix(name, "-") {
		return nil, false
	}
	if w, ok := f.Value.(*wordFlag); ok {
		for _, word := range w.known {
			found = append(found, term{prefix + word, ""})
		}
	}
	value, _ := flag.UnquoteUsage(f)
	return found, value != ""
}

var argumentWord = regexp.MustCompile(`^[a-z]+$`)

// argumentWords are the words that arguments, as in a line of usage, has for one to choose from.
func argumentWords(arguments string) []string {
	return slices.DeleteFunc(strings.Split(strings.Trim(arguments, "[]"), "|"), func(word string) bool {
		return !argumentWord.MatchString(word) || word == "conditions"
	})
}
