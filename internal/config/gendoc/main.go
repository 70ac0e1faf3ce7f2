// Command gendoc writes docs/configuration.md and what the Helm charts have to know of the variables from the structs of
// package config: names, defaults and rules come from their tags, explanations from their comments. It is run by go generate
// and is no part of the sidecar.
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
	for name, content := range map[string]string{os.Args[1]: text, os.Args[2]: template()} {
		if err == nil {
			err = os.WriteFile(name, []byte(content), 0o644) // #nosec G306 G703 -- documentation is for everybody, and goes where "go generate" says
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gendoc:", err)
		os.Exit(1)
	}
}
