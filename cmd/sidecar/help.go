package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sidecar/internal/deadletter"
)

const helpWidth = 72 // columns: the manual page indents the help

const conditionsTitle = "Conditions. All must hold; of several values for one any, of several headers all"

// term is a command or a flag, and what it does.
type term struct{ name, text string }

// terms are the flags of a command, those for conditions separately.
func terms(cmd *cobra.Command) (flags, conditions []term) {
	of := map[string]string{}
	for _, c := range deadletter.Conditions {
		of[c.Name] = c.Help
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		value, text := pflag.UnquoteUsage(f)
		if value == "func" { // the type of a flag whose usage names no value
			value = "value"
		}
		name := strings.TrimRight("--"+f.Name+" "+strings.ToUpper(value), " ")
		switch {
		case f.Name == "help":
		case of[f.Name] == text:
			conditions = append(conditions, term{name, text})
		case f.Shorthand != "":
			flags = append(flags, term{name + ", -" + f.Shorthand, text})
		default:
			flags = append(flags, term{name, text})
		}
	})
	return flags, conditions
}

// printUsage writes the help of a command.
func printUsage(w io.Writer, cmd *cobra.Command) {
	flags, conditions := terms(cmd)
	usage, description := cmd.UseLine(), cmd.Long
	if len(flags) > 0 {
		usage += " [flags]"
	}
	if description == "" {
		description = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	_, _ = fmt.Fprintf(w, "usage: %s\n\n%s\n", usage, wrapped(description, 0))
	var commands []term
	for _, c := range cmd.Commands() {
		if c.Short != "" {
			commands = append(commands, term{c.Name(), c.Short})
		}
	}
	printTerms(w, "Commands", commands)
	printTerms(w, "Flags", flags)
	printTerms(w, conditionsTitle, conditions)
	_, _ = fmt.Fprint(w, "\nExamples:\n\n")
	for e := range strings.SplitSeq(cmd.Example, "\n") {
		_, _ = fmt.Fprintln(w, strings.TrimRight("  "+cmd.CommandPath()+" "+e, " "))
	}
	if end := cmd.Annotations[notes]; end != "" {
		_, _ = fmt.Fprintf(w, "\n%s\n", wrapped(end, 0))
	}
}

func printTerms(w io.Writer, title string, terms []term) {
	wide := 0
	for _, t := range terms {
		wide = max(wide, len(t.name))
	}
	for i, t := range terms {
		if i == 0 {
			_, _ = fmt.Fprintf(w, "\n%s\n\n", wrapped(title+":", 0))
		}
		_, _ = fmt.Fprintf(w, "  %-*s  %s\n", wide, t.name, wrapped(t.text, wide+4))
	}
}

// wrapped breaks a text, whose first line begins in column indent, into lines that fit.
func wrapped(text string, indent int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(text) {
		switch at += 1 + utf8.RuneCountInString(word); {
		case i == 0:
			at--
		case at > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent + utf8.RuneCountInString(word)
		default:
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

func help(c *call) execution {
	c.cmd.ValidArgsFunction = func(_ *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
		at, _, _ := c.cmd.Root().Find(words)
		return namesOf(at.Commands()), cobra.ShellCompDirectiveNoFileComp
	}
	return func(context.Context) error { return showHelp(c.cmd.Root(), c.words) }
}

// completes offers the known words as values of a flag.
func (c *call) completes(name string, known []string) {
	// an error means that the flag is not declared, or twice
	_ = c.cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
}

// takesFile offers names of files as arguments.
func (c *call) takesFile() {
	c.cmd.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
}

// takesWord offers the known words as arguments.
func (c *call) takesWord(known ...string) {
	c.cmd.ValidArgsFunction = cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)
}

// completion prints the script of a shell. The scripts ask the program for the words that may come next.
func completion(c *call) execution {
	shells := []string{"bash", "zsh", "fish"}
	c.takesWord(shells...)
	return func(context.Context) error {
		if len(c.words) != 1 || !slices.Contains(shells, c.words[0]) {
			return c.misuse("want the name of a shell; %s", suggestion(strings.Join(c.words, " "), shells, nil))
		}
		return c.print("sidecar."+c.words[0], strings.NewReplacer())
	}
}

// print writes one of shellFiles to standard output.
func (c *call) print(name string, fill *strings.Replacer) error {
	text, err := shellFiles.ReadFile("shell/" + name)
	if err != nil {
		return err
	}
	_, err = fill.WriteString(c.stdout, string(text))
	return err
}
