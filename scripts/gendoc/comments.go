package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// comments maps "Type.Field" to the comment above the field, on one line, for every struct declared in dir.
func comments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read sources in %q: %w", dir, os.ErrNotExist)
	}
	said := map[string]string{}
	set := token.NewFileSet()
	for _, file := range files {
		f, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse sources: %w", err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok {
				collect(said, t)
			}
			return true
		})
	}
	return said, nil
}

func collect(said map[string]string, t *ast.TypeSpec) {
	s, ok := t.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			said[t.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
		}
	}
}
