package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport is who may import whom inside the module (design section 1);
// everybody may import check, and the root all of them.
var mayImport = map[string][]string{
	"check/agents": {"check/loop"},
	"notify":       {"check/loop", "state"},
}

// goFiles are the module's own Go files, tests left out.
func goFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "testdata" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		files[path] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func imports(f *ast.File) (paths []string) {
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

// TestImports holds who may import whom.
func TestImports(t *testing.T) {
	for path, f := range goFiles(t) {
		dir := filepath.Dir(path)
		if dir == "." {
			continue
		}
		for _, p := range imports(f) {
			inside, ours := strings.CutPrefix(p, "tickdog/")
			if ours && inside != "check" && !slices.Contains(mayImport[dir], inside) {
				t.Errorf("%s imports %s", path, p)
			}
		}
	}
}

// TestFolders: the folders at the root are these five.
func TestFolders(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		known := []string{"check", "state", "notify", "units", "testdata", "dist"} // dist: .ci/deb's output, ignored by git
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(known, e.Name()) {
			t.Errorf("folder %s at the root", e.Name())
		}
	}
}

// TestDecideIsPure: every decide.go compiles with no other file of its package,
// and imports nothing that could read a clock, touch a file or talk. (It may
// import time for durations; it may call nothing of it that reads a clock.)
func TestDecideIsPure(t *testing.T) {
	allowed := []string{"tickdog/check", "cmp", "errors", "fmt", "maps", "math", "math/bits", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8", "hash/fnv", "encoding/binary", "crypto/sha256", "encoding/hex"}
	clocks := []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep"}
	found := 0
	for path, f := range goFiles(t) {
		if filepath.Base(path) != "decide.go" {
			continue
		}
		found++
		for _, p := range imports(f) {
			if !slices.Contains(allowed, p) {
				t.Errorf("%s imports %s", path, p)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, s.Sel.Name) {
					t.Errorf("%s calls time.%s", path, s.Sel.Name)
				}
			}
			return true
		})
		if out, err := exec.Command("go", "vet", "./"+path).CombinedOutput(); err != nil {
			t.Errorf("%s does not compile alone: %v\n%s", path, err, out)
		}
	}
	if found != 4 {
		t.Errorf("%d decide.go, want one each for gpu, agents, cycle and loop", found)
	}
}

// TestOneExit: main.go has the only os.Exit.
func TestOneExit(t *testing.T) {
	for path, f := range goFiles(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Exit" && path != "main.go" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "os" {
					t.Errorf("%s calls os.Exit", path)
				}
			}
			return true
		})
	}
}

// TestNoShell: no string in the program is the name of a shell.
func TestNoShell(t *testing.T) {
	shells := []string{"sh", "bash", "dash", "/bin/sh", "/bin/bash", "/usr/bin/sh", "/usr/bin/bash"}
	for path, f := range goFiles(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, _ := strconv.Unquote(l.Value); slices.Contains(shells, s) {
					t.Errorf("%s names the shell %q", path, s)
				}
			}
			return true
		})
	}
}
