package main

import (
	"bufio"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	build "outrider.dev/build/commands"
)

// A measure is one number that must not exceed its limit in budgets.txt.
type measure struct {
	name  string
	take  func(*tree) (result, error)
	shown bool // print its places even if it is within the limit
}

// A result is the value of a measure, with the places in the source that it counts.
type result struct {
	measure measure
	limit   int
	now     int
	places  []string
}

// startPath lists the folders whose code runs while a pod starts, or determines how it starts.
var startPath = []string{"startup", "internal/core/agent", "internal/base/wire", "internal/core/capture", "internal/core/pod", "cmd/outrider-agent"}

// measures lists all measures, in the order of the table.
var measures = []measure{
	{"packages that the agent links, outside the standard library", linked("outrider-agent", true), false},
	{"size of the agent as it is shipped for amd64, in 100 kB", size(build.Agent), false},
	// With Helm, html/template or gRPC's trace, outrider would have 73 MB: templates call methods by name, so the
	// linker keeps every method of every type, including all of client-go's clients.
	{"packages of other modules that outrider links", linked("outrider", false), false},
	{"size of outrider as it is shipped for amd64, in 100 kB", size(build.CLI), false},
	{"size of outrider-operate as it is shipped for amd64, in 100 kB", size(build.Operate), false},
	{"functions over 15 branches in the start path, without a reason", branchy, false},
	{"reads of the environment outside cmd and internal/base/cli", environment, false},
	{"literals of the ports 15001 and 15021 outside the contract", literals(token.INT, `^150(01|21)$`), false},
	{"literals of /outrider/own outside the contract", literals(token.STRING, `^"/outrider/own`), false},
	{"decisions on a condition outside startup", conditions, false},
	{"lists of mechanisms outside startup", preferences, false},
	{"packages over 3,000 lines of code", large, true},
	{"structs of core/mesh and core/pod whose fields are written in more than two files", throughFiles(true), true},
	{"structs elsewhere whose fields are written in more than two files", throughFiles(false), true},
	{"\"nobody\" and \"somebody\"", words(`\b([Nn]obod(y|ys|y's)|[Ss]omebod(y|ys|y's))\b`), false}, // does not match http.NoBody
	{"references to documents that are not here", words(`(?i)(^|[^\w/])(design \d|design\.md|style\.md|reference/|issue \d+)`), false},
	{"comments and paragraphs with a sentence that makes a reader stop", stumbles, false},
	{"nouns of ours for what the field has a name for", words(privateNouns), false},
	{"ranges over a map whose order can show, without a reason", mapOrder, false},
	{"ports of tests that are closed and used again, without a reason", inTests(file.runs, "closed port", closedPorts), false},
	{"tests that fail if something takes seconds, without a reason", inTests(file.judges, "time limit", upperBounds), false},
	{"programs that a killed test leaves behind", inTests(file.runs, "outlives", orphans), false},
	{"commands", commands, false},
	{"flags, of each command", flags, false},
	{"annotations and labels of our own", annotations, false},
	{"settings of Istio that have a row", rows("docs/settings.md"), false},
	{"values of the chart", rows("docs/install.md"), false},
	{"codes of findings", pages("docs/findings"), false},
	{"pages", pages("docs"), false},
	{"thousands of words in the pages", prose, false},
	{"modules required", modules, false},
	{"raises of a budget that change something else, or say nothing", raises, false},
}

// linked counts the packages that a command links, without the standard library. If own is false, it does not
// count the packages of this project either.
func linked(command string, own bool) func(*tree) (result, error) {
	return func(t *tree) (result, error) {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/"+command)
		cmd.Dir = t.root
		out, err := cmd.Output()
		if err != nil {
			return result{}, err
		}
		packages := slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return !own && strings.HasPrefix(p, "outrider.dev/") })
		return result{now: len(packages), places: packages}, nil
	}
}

// size builds a command as for a release, and returns its size in units of 100 kB, rounded up. The exact size
// would change with each commit, because the version is part of the command.
func size(command string) func(*tree) (result, error) {
	return func(t *tree) (result, error) {
		dir, err := t.built("linux", "amd64")
		if err != nil {
			return result{}, err
		}
		info, err := os.Stat(filepath.Join(dir, command))
		if err != nil {
			return result{}, err
		}
		return result{now: int((info.Size() + 99_999) / 100_000)}, nil
	}
}

// branchy lists the functions in startPath whose complexity ([branches]) is more than 15 and whose comment has no
// reason ("complexity: ...").
func branchy(t *tree) (result, error) {
	var r result
	for _, f := range t.code() {
		if !f.below(startPath...) {
			continue
		}
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || strings.Contains(fn.Doc.Text(), "complexity:") {
				continue
			}
			if n := branches(fn); n > 15 {
				r.add(t.place(fn) + " " + fn.Name.Name + " " + itoa(n))
			}
		}
	}
	return r, nil
}

// branches returns the cyclomatic complexity of a function: one, plus one for each branch.
func branches(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// environment lists the calls in internal and startup that read environment variables, except in
// internal/base/cli.
func environment(t *tree) (result, error) {
	var r result
	for _, f := range t.code() {
		if !f.below("internal", "startup") || f.below("internal/base/cli") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && slices.Contains([]string{"os.Getenv", "os.LookupEnv", "os.Environ"}, selector(call.Fun)) {
				r.add(t.place(call))
			}
			return true
		})
	}
	return r, nil
}

// literals lists the literals of a kind that match a pattern, outside of package contract.
func literals(kind token.Token, pattern string) func(*tree) (result, error) {
	match := regexp.MustCompile(pattern)
	return func(t *tree) (result, error) {
		var r result
		for _, f := range t.code() {
			if f.below("internal/base/contract") || !f.below("internal", "cmd", "startup") {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == kind && match.MatchString(l.Value) {
					r.add(t.place(l))
				}
				return true
			})
		}
		return r, nil
	}
}

// conditions lists the switches over the conditions of an edge that compute whether an edge is satisfied. This
// should be computed only in package startup, because several implementations may differ.
func conditions(t *tree) (result, error) {
	names := []string{"startup.Started", "startup.Healthy", "startup.Completed"}
	var r result
	for _, f := range t.code() {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			s, ok := n.(*ast.SwitchStmt)
			if !ok {
				return true
			}
			cases := 0
			for _, c := range s.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					if slices.Contains(names, selector(e)) {
						cases++
					}
				}
			}
			if cases > 0 && returnsBool(s) {
				r.add(t.place(s))
			}
			return true
		})
	}
	return r, nil
}

// returnsBool reports whether each case of a switch returns one value that is not a string literal.
func returnsBool(s *ast.SwitchStmt) bool {
	for _, c := range s.Body.List {
		for _, st := range c.(*ast.CaseClause).Body {
			ret, ok := st.(*ast.ReturnStmt)
			if !ok || len(ret.Results) != 1 {
				return false
			}
			if l, ok := ret.Results[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
				return false
			}
		}
	}
	return true
}

// preferences lists the literal lists of at least three mechanisms outside package startup.
func preferences(t *tree) (result, error) {
	var r result
	for _, f := range t.code() {
		if f.below("startup") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if l, ok := n.(*ast.CompositeLit); ok && len(l.Elts) >= 3 {
				if list, ok := l.Type.(*ast.ArrayType); ok && selector(list.Elt) == "startup.Mechanism" {
					r.add(t.place(l))
				}
			}
			return true
		})
	}
	return r, nil
}

// words lists the lines of Go files and of pages that match a pattern.
func words(pattern string) func(*tree) (result, error) {
	match := regexp.MustCompile(pattern)
	return func(t *tree) (result, error) {
		var r result
		for _, f := range t.files {
			if f.below("build/house") || !strings.HasSuffix(f.path, ".go") && !strings.HasSuffix(f.path, ".md") {
				continue
			}
			s := bufio.NewScanner(strings.NewReader(f.text))
			s.Buffer(nil, 1<<20)
			for n := 1; s.Scan(); n++ {
				if match.MatchString(s.Text()) {
					r.add(f.path + ":" + itoa(n) + " " + strings.TrimSpace(s.Text()))
				}
			}
			if err := s.Err(); err != nil {
				return r, err
			}
		}
		return r, nil
	}
}

func (r *result) add(place string) {
	r.now++
	r.places = append(r.places, place)
}

// selector returns "pkg.Name" for an expression of that form.
func selector(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}

func itoa(n int) string { return strconv.Itoa(n) }
