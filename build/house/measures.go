package main

import (
	"bufio"
	"go/ast"
	"go/token"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A measure is one line of the table.
type measure struct {
	name  string
	limit int
	take  func(*tree) (result, error)
}

// A result is what a measure found, and where.
type result struct {
	measure measure
	now     int
	places  []string
}

// startPath is what runs, or decides, while a pod starts.
var startPath = []string{"startup", "internal/core/agent", "internal/base/wire", "internal/core/capture", "internal/core/pod", "cmd/outrider-agent"}

// The aims of the first six are the project's; the comment gives the reason where one is over its aim.
var measures = []measure{
	{"packages that the agent links, outside the standard library", 42, linked},
	{"functions over 15 branches in the start path, without a reason", 0, branchy},
	{"reads of the environment outside cmd and internal/base/cli", 0, environment},
	{"literals of the ports 15001 and 15021 outside the contract", 0, literals(token.INT, `^150(01|21)$`)},
	{"literals of /outrider/own outside the contract", 0, literals(token.STRING, `^"/outrider/own`)},
	{"decisions on a condition outside startup", 0, conditions},
	{"lists of mechanisms outside startup", 0, preferences},
	{"lines of cmd/outrider itself, without tests", 3400, lines("cmd/outrider")},
	{"\"nobody\" and \"somebody\"", 5, words(`\b([Nn]obod(y|ys|y's)|[Ss]omebod(y|ys|y's))\b`)}, // not http.NoBody
	{"references to documents that are not here", 0, words(`(?i)(^|[^\w/])(design \d|design\.md|style\.md|reference/|issue \d+)`)},
	{"ranges over a map whose order can show, without a reason", 0, mapOrder},
	{"ports of tests that are closed and used again, without a reason", 0, inTests(file.runs, "closed port", closedPorts)},
	{"tests that fail if something takes seconds, without a reason", 0, inTests(file.judges, "time limit", upperBounds)},
	{"programs that a killed test leaves behind", 13, inTests(file.runs, "outlives", orphans)},
	// 15,000 came with what holds under trouble: the agent's relay, admission by turns, identities
	// by token, and the suites that storm, delay, kill and roll out; 5,000 with the keys of Istio's
	// API, what lint finds and the pods that hold it, and the agreement of the tools; 2,000 with the
	// API server's own validation of what is injected, and what it found; 12,000 with what an
	// operator needs: the chart's tests, install, check and upgrade, and an authority of replicas; 10,000 with the way back (uninject,
	// rotate, bug-report), what describes a running mesh, images and releases; 10,000 with the plugins of
	// the node (NRI, CNI), and a second container runtime to try them on; 16,000 with the modules for
	// applications (ready, resilience, bootconfig), all of the Gateway API's mesh profiles, and authorization; 1,400 with the tiers, the rules for tests
	// that fail by load or chance, and test/process; 610 with what keeps one tenant from the others: turns by
	// namespace, addresses of Hosts, ports, endpoints, and what hostile files cost the command; 110 with tests that wait for what they need.
	{"lines of Go, code and tests", 242526, lines("")},
}

// linked counts what the binary in every pod links.
func linked(t *tree) (result, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/outrider-agent")
	cmd.Dir = t.root
	out, err := cmd.Output()
	if err != nil {
		return result{}, err
	}
	packages := strings.Fields(string(out))
	return result{now: len(packages), places: packages}, nil
}

// branchy lists the functions with more than 15 branches and no reason in the comment
// ("complexity: ...").
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

// branches is the cyclomatic complexity of a function: one, and one for each branch.
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

// environment lists the calls that read variables of the process.
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

// literals lists the literals of a kind that match.
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

// conditions lists the switches over the conditions of an edge outside package startup: each
// may be another answer to "is this edge satisfied".
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

// returnsBool reports whether a switch returns something computed from a state, and not a text.
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

// preferences lists the literal lists of three mechanisms or more outside package startup.
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

// lines counts those of the Go files below a folder; of all, tests too, for "".
func lines(folder string) func(*tree) (result, error) {
	return func(t *tree) (result, error) {
		var r result
		for _, f := range t.files {
			if !strings.HasSuffix(f.path, ".go") || folder != "" && (f.isTest() || path.Dir(f.path) != folder) {
				continue
			}
			r.now += strings.Count(f.text, "\n")
		}
		return r, nil
	}
}

// words lists the lines of Go and of pages in which a pattern stands.
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

// selector returns "pkg.Name" of an expression of that form.
func selector(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}

func itoa(n int) string { return strconv.Itoa(n) }
