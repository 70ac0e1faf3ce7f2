package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// half is what was found about consuming, or about sending.
type half interface {
	figures() []figure
	markdown(figures []figure) string
}

// write puts what was found where the flags say.
func (b *bench) write(o *options, table io.Writer) error {
	var errs []error
	if o.wants(consume) {
		plot := b.result.plot()
		errs = append(errs, os.WriteFile(filepath.Join(o.out, "plot.svg"), plot, 0o644),
			writeHalf(o, table, b.result, "result", "bench"))
		if o.docs {
			errs = append(errs, os.WriteFile("docs/performance.svg", plot, 0o644))
		}
	}
	if o.wants(produce) {
		errs = append(errs, writeHalf(o, table, b.produced, "produce", "bench-produce"))
	}
	if o.wants(retried) && len(b.retriesBy.Runs) > 0 {
		errs = append(errs, writeHalf(o, table, b.retriesBy, "retries", "bench-retries"))
	}
	if o.wants(batches) {
		errs = append(errs, writeHalf(o, table, b.inBatches, "batches", "bench-batches"))
	}
	if o.wants(several) {
		errs = append(errs, writeHalf(o, table, b.severally, "several", "bench-several"))
	}
	return errors.Join(errs...)
}

// writeHalf writes what was found to files of a name, and to a section of the documentation.
func writeHalf(o *options, table io.Writer, found half, name, section string) error {
	encoded, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		return err
	}
	encoded = append(encoded, '\n')
	figures := found.figures()
	text := found.markdown(figures)
	if err := errors.Join(
		os.WriteFile(filepath.Join(o.out, name+".json"), encoded, 0o644),
		os.WriteFile(filepath.Join(o.out, name+".md"), []byte(text), 0o644)); err != nil {
		return err
	}
	if _, err := io.WriteString(table, text+"\n"); err != nil {
		return err
	}
	if o.docs {
		if err := publishSection(section, text); err != nil {
			return err
		}
		if err := os.WriteFile("bench/"+name+".json", encoded, 0o644); err != nil {
			return err
		}
	}
	if o.strict {
		return missed(figures)
	}
	return nil
}

// publishSection puts a text where readers look for it.
func publishSection(section, text string) error {
	const page = "docs/performance.md"
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	fresh, err := replaceSection(string(old), section, text)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(fresh), 0o644)
}

// replaceSection replaces the text between the two marks of a section.
func replaceSection(page, section, text string) (string, error) {
	begin, end := "<!-- "+section+":begin -->", "<!-- "+section+":end -->"
	head, rest, found := strings.Cut(page, begin)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("no section between %s and %s", begin, end)
	}
	return head + begin + "\n\n" + text + "\n" + end + tail, nil
}
