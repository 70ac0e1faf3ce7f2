// Command gendoc writes docs/configuration.md from the structs of package config (names, defaults and rules come from
// their tags, explanations from their comments), and the names of the presets' queues for the Helm charts from
// package topology. It is run by go generate and is not part of the sidecar.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gendoc PAGE TEMPLATE, in the directory of package config")
		os.Exit(2)
	}
	text, err := render(".")
	for name, content := range map[string]string{os.Args[1]: text, os.Args[2]: presets()} {
		if err == nil {
			// #nosec G306 G703 -- documentation is for all, and goes where "go generate" says
			err = os.WriteFile(name, []byte(content), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gendoc:", err)
		os.Exit(1)
	}
}
