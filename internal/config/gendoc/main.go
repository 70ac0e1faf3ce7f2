// Command gendoc writes docs/configuration.md from the structs of package config: names, defaults and rules come from
// their tags, explanations from their comments. It is run by go generate and is no part of the sidecar.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gendoc FILE, in the directory of package config")
		os.Exit(2)
	}
	text, err := render(".")
	if err == nil {
		err = os.WriteFile(os.Args[1], []byte(text), 0o644) // #nosec G306 G703 -- documentation is for everybody, and goes where "go generate" says
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gendoc:", err)
		os.Exit(1)
	}
}
