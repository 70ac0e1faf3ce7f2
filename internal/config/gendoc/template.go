package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"sidecar/internal/config"
)

// template makes the table of variables and of reserved headers for the Helm charts: what is not in it is unknown to the
// sidecar, and what breaks its rules would end it with exit 64, so the charts refuse both before anything is installed.
func template() string {
	var b strings.Builder
	b.WriteString(`{{- /* Generated from internal/config by "go generate ./internal/config". Do not edit. */ -}}
{{- define "amqp-sidecar-lib.variables" -}}
`)
	for _, s := range config.Describe(func(s string) string { return s }) {
		for _, v := range s.Variables {
			rule, err := json.Marshal(struct {
				Kind  string   `json:"kind,omitempty"`
				Words []string `json:"words,omitempty"`
				Low   string   `json:"low,omitempty"`
				High  string   `json:"high,omitempty"`
				Unit  string   `json:"unit,omitempty"`
				Twin  string   `json:"twin,omitempty"`
			}{v.Kind, v.Words, v.Low, v.High, v.Unit, v.Twin})
			if err != nil { // strings cannot fail
				panic(err)
			}
			fmt.Fprintf(&b, "%s: %s\n", v.Name, rule)
		}
	}
	b.WriteString("{{- end -}}\n{{- define \"amqp-sidecar-lib.reservedHeaders\" -}}\n")
	never, bare, prefixes := config.ReservedHeaders()
	fmt.Fprintf(&b, "never: %s\nbare: %s\nprefixes: %s\n", words(never), words(bare), words(prefixes))
	b.WriteString("{{- end -}}\n")
	return b.String()
}

// words is a list in YAML.
func words(list []string) string { return "[" + strings.Join(list, ", ") + "]" }
