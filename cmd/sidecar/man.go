package main

import (
	"context"
	"embed"
	"strings"

	"github.com/spf13/cobra"
)

// shellFiles are the scripts for completion, and the manual page without its commands.
//
//go:embed shell
var shellFiles embed.FS

// man prints the page sidecar(1), with the help of every command.
func man(c *call) execution {
	return func(context.Context) error {
		var commands strings.Builder
		manCommands(&commands, c.cmd.Root())
		return c.print("sidecar.1", strings.NewReplacer("@VERSION@", roff(version), "@EXIT_CODES@", roff(exitCodes),
			"@COMMANDS@\n", commands.String()))
	}
}

func manCommands(b *strings.Builder, above *cobra.Command) {
	for _, cmd := range above.Commands() {
		var text strings.Builder
		printUsage(&text, cmd)
		b.WriteString(".SS " + roff(cmd.CommandPath()) + "\n.EX\n" + roff(text.String()) + ".EE\n")
		manCommands(b, cmd)
	}
}

// roff writes text so that nothing in it is an instruction: a line must not begin with a dot or a quote.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace("\n" + text)
	return text[1:]
}
