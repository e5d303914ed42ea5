package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// inTests returns the measure that applies a rule (find) to the selected files. The rules find code that makes
// tests fail at random or under load, or that leaves a process behind. A place with a comment "EXCUSE: REASON",
// on the line or above it, is not counted.
func inTests(files func(file) bool, excuse string, find func(*checked, ast.Decl) []ast.Node) func(*tree) (result, error) {
	match := regexp.MustCompile(excuse + `: \S`)
	return func(t *tree) (r result, err error) {
		types, err := t.checked()
		if err != nil {
			return r, err
		}
		for _, f := range t.files {
			if f.syntax == nil || f.below("test/process") || !files(f) {
				continue
			}
			excused := excused(t, f.syntax, match)
			for _, d := range f.syntax.Decls {
				for _, n := range find(types, d) {
					if !excused[t.fset.Position(n.Pos()).Line] {
						r.add(t.place(n))
					}
				}
			}
		}
		return r, nil
	}
}

// judges reports whether the file can fail a test, because it imports package testing. runs reports whether tests
// or benchmarks use the file.
func (f file) judges() bool {
	return slices.ContainsFunc(f.syntax.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
}
func (f file) runs() bool { return f.isTest() || f.below("bench") || f.judges() }

// closedPorts finds servers that are closed although their address is used afterwards: another process may have
// got the port by then. The address counts as used if the same function calls Addr, or uses the URL of an
// httptest.Server later. A deferred Close is allowed, unless the function returns values, such as the address.
func closedPorts(c *checked, d ast.Decl) (out []ast.Node) {
	last := map[types.Object]token.Pos{} // maps a server to the last use of its address
	ast.Inspect(d, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && c.object(s.X) != nil {
			switch o := c.object(s.X); s.Sel.Name {
			case "Addr", "LocalAddr":
				last[o] = d.End()
			case "URL":
				last[o] = s.Pos()
			}
		}
		return true
	})
	fn, _ := d.(*ast.FuncDecl)
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			return false // the statement may return a function literal that closes the server later
		case *ast.DeferStmt:
			if fn == nil || fn.Type.Results == nil || strings.Contains(c.called(n.Call), "httptest") {
				return false
			}
		case *ast.CallExpr:
			if strings.HasSuffix(c.called(n), ".Cleanup") {
				return false
			}
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Close" {
				o := c.object(s.X)
				servers := []string{"net.Listener", "net.PacketConn", "*net.TCPListener", "*net.UDPConn", "*net/http/httptest.Server"}
				if o != nil && (fn == nil || o.Pos() > fn.Body.Pos()) && last[o] > s.Pos() && slices.Contains(servers, o.Type().String()) {
					out = append(out, s)
				}
			}
		}
		return true
	})
	return out
}

// upperBounds finds code that fails if something takes longer than a constant of less than a minute. It skips
// synctest bubbles, because their time does not depend on the load of the machine.
func upperBounds(c *checked, d ast.Decl) (out []ast.Node) {
	took, ends := map[types.Object]bool{}, map[types.Object]bool{}
	measured := func(e ast.Expr) bool { return c.has(e, took, "time.Since", "(time.Time).Sub") }
	above := func(n ast.Node) bool { // reports whether n compares a measured time with a short constant
		b, ok := n.(*ast.BinaryExpr)
		return ok && (b.Op == token.GTR || b.Op == token.GEQ) && measured(b.X) && c.short(b.Y) || ok && (b.Op == token.LSS || b.Op == token.LEQ) && measured(b.Y) && c.short(b.X)
	}
	timer := func(n ast.Node) bool { return c.called(n) == "time.After" && c.short(n.(*ast.CallExpr).Args[0]) }
	end := func(n ast.Node) bool {
		return c.called(n) == "(time.Time).Add" && c.called(n.(*ast.CallExpr).Fun.(*ast.SelectorExpr).X) == "time.Now" && c.short(n.(*ast.CallExpr).Args[0])
	}
	find := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, e := range n.Lhs {
				if o := c.object(e); o != nil && len(n.Lhs) == len(n.Rhs) {
					took[o] = took[o] || measured(n.Rhs[i])
					ends[o] = ends[o] || timer(n.Rhs[i]) || end(n.Rhs[i])
				}
			}
		case *ast.IfStmt:
			if c.fails(n.Body) && any(n.Cond, above) {
				out = append(out, n)
			}
		case *ast.CaseClause:
			if c.fails(n) && slices.ContainsFunc(n.List, func(e ast.Expr) bool { return any(e, above) }) {
				out = append(out, n)
			}
		case *ast.CommClause:
			if n.Comm != nil && c.fails(n) && (any(n.Comm, timer) || c.has(n.Comm, ends)) {
				out = append(out, n)
			}
		case *ast.KeyValueExpr: // the field Timeout of http.Client and net.Dialer
			if id, ok := n.Key.(*ast.Ident); ok && id.Name == "Timeout" && c.Uses[id] != nil && c.Uses[id].Pkg() != nil && strings.HasPrefix(c.Uses[id].Pkg().Path(), "net") && c.short(n.Value) {
				out = append(out, n)
			}
		case *ast.CallExpr:
			called := c.called(n)
			_, method, _ := strings.Cut(called, ").")
			switch {
			case called == "testing/synctest.Test" || c.bubbles[called]:
				return false
			case (called == "context.WithTimeout" || called == "net.DialTimeout") && c.short(n.Args[len(n.Args)-1]),
				strings.HasPrefix(method, "Set") && strings.HasSuffix(method, "Deadline") && end(n.Args[0]),
				(method == "Before" || method == "After") && c.has(n, ends):
				out = append(out, n)
			}
		}
		return true
	}
	ast.Inspect(d, find)
	out = nil
	ast.Inspect(d, find) // the second run knows all assignments, also those after a node
	return out
}

// orphans finds programs that a test starts without Pdeathsig, so that they continue if the test is killed.
func orphans(c *checked, d ast.Decl) (out []ast.Node) {
	if any(d, func(n ast.Node) bool { id, ok := n.(*ast.Ident); return ok && id.Name == "Pdeathsig" }) {
		return nil
	}
	ast.Inspect(d, func(n ast.Node) bool {
		if c.called(n) == "(*os/exec.Cmd).Start" {
			out = append(out, n)
		}
		return true
	})
	return out
}

// any reports whether a condition (is) holds for a node or for a node below it.
func any(n ast.Node, is func(ast.Node) bool) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		found = found || n != nil && is(n)
		return !found
	})
	return found
}

// has reports whether a node, or a node below it, uses one of the variables or calls one of the functions.
func (c *checked) has(n ast.Node, of map[types.Object]bool, functions ...string) bool {
	return any(n, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		return ok && of[c.object(e)] || slices.Contains(functions, c.called(n))
	})
}

// fails reports whether code in a node fails a test, panics, or creates an error.
func (c *checked) fails(n ast.Node) bool {
	ends := []string{"panic", "New", "Error", "Errorf", "Fatal", "Fatalf", "FailNow"}
	return any(n, func(n ast.Node) bool { id := name(n); return id != nil && slices.Contains(ends, id.Name) })
}
