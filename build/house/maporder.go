package main

import (
	"go/ast"
	"go/types"
	"regexp"
	"strings"

	"golang.org/x/tools/go/packages"
)

// mapOrder lists the range loops over a map in which the random order can affect the result: they return from
// within the loop, print, or append to a slice that the function does not sort. Loops with a comment "any order:
// REASON" on the line or above it are not listed.
func mapOrder(t *tree) (result, error) {
	cfg := &packages.Config{Dir: t.root, Fset: t.fset, Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports}
	all, err := packages.Load(cfg, "./...")
	if err != nil {
		return result{}, err
	}
	var r result
	for _, p := range all {
		for _, e := range p.Errors {
			return r, e
		}
		for _, f := range p.Syntax {
			c := mapChecker{info: p.TypesInfo, excused: excused(t, f, anyOrder)}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
					for _, n := range c.check(fn, t) {
						r.add(t.place(n) + " in " + fn.Name.Name)
					}
				}
			}
		}
	}
	return r, nil
}

var anyOrder = regexp.MustCompile(`any order: \S`)

// excused returns the lines of a file that are excused by a comment that matches a regular expression: the
// lines of the comment and the next one.
func excused(t *tree, f *ast.File, excuse *regexp.Regexp) map[int]bool {
	out := map[int]bool{}
	for _, g := range f.Comments {
		if excuse.MatchString(g.Text()) {
			for line := t.fset.Position(g.Pos()).Line; line <= t.fset.Position(g.End()).Line+1; line++ {
				out[line] = true
			}
		}
	}
	return out
}

type mapChecker struct {
	info    *types.Info
	excused map[int]bool
}

// check returns the range loops of a function in which the order of a map can affect the result.
func (c mapChecker) check(fn *ast.FuncDecl, t *tree) (out []ast.Node) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		r, ok := n.(*ast.RangeStmt)
		if !ok || !c.overMap(r) || c.excused[t.fset.Position(r.Pos()).Line] {
			return true
		}
		if c.shows(r, fn.Body) {
			out = append(out, r)
		}
		return true
	})
	return out
}

// overMap reports whether a loop ranges over a map, or over maps.Keys, maps.Values or maps.All of one.
func (c mapChecker) overMap(r *ast.RangeStmt) bool {
	if call, ok := r.X.(*ast.CallExpr); ok {
		switch selector(call.Fun) {
		case "maps.Keys", "maps.Values", "maps.All":
			return true
		}
	}
	if r.Key == nil && r.Value == nil {
		return false
	}
	tv, ok := c.info.Types[r.X]
	if !ok {
		return false
	}
	_, isMap := tv.Type.Underlying().(*types.Map)
	return isMap
}

// shows reports whether the body of a loop returns a value that is not constant, prints, or appends to an outer
// slice that is not sorted afterwards.
func (c mapChecker) shows(r *ast.RangeStmt, body *ast.BlockStmt) bool {
	found := false
	ast.Inspect(r.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			for _, e := range n.Results {
				if tv, ok := c.info.Types[e]; ok && tv.Value == nil && !tv.IsNil() && !allConstant(e) {
					found = true
				}
			}
		case *ast.CallExpr:
			name := selector(n.Fun)
			if strings.HasPrefix(name, "fmt.Fprint") || strings.HasPrefix(name, "fmt.Print") {
				found = true
			}
		case *ast.AssignStmt:
			for i, e := range n.Rhs {
				call, ok := e.(*ast.CallExpr)
				if !ok || i >= len(n.Lhs) {
					continue
				}
				if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "append" && c.outside(n.Lhs[i], r) && !sortedLater(n.Lhs[i], r, body) {
					found = true
				}
			}
		}
		return !found
	})
	return found
}

// allConstant reports whether an expression is an empty composite literal, such as Phase{}.
func allConstant(e ast.Expr) bool {
	l, ok := e.(*ast.CompositeLit)
	return ok && len(l.Elts) == 0
}

// outside reports whether the assigned variable was declared outside the loop. It is false for an element such as
// m[k], because that does not depend on the order.
func (c mapChecker) outside(lhs ast.Expr, r *ast.RangeStmt) bool {
	switch e := lhs.(type) {
	case *ast.Ident:
		obj := c.info.ObjectOf(e)
		return obj != nil && (obj.Pos() < r.Pos() || obj.Pos() > r.End())
	case *ast.SelectorExpr:
		return c.outside(e.X, r)
	case *ast.IndexExpr:
		return false
	}
	return true
}

// sortedLater reports whether a call after the loop, of a function with "sort" in its name, has the slice as an
// argument.
func sortedLater(lhs ast.Expr, r *ast.RangeStmt, body *ast.BlockStmt) bool {
	name := types.ExprString(lhs)
	sorted := false
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || call.Pos() < r.End() {
			return true
		}
		if !strings.Contains(strings.ToLower(types.ExprString(call.Fun)), "sort") {
			return true
		}
		for _, a := range call.Args {
			if strings.Contains(types.ExprString(a), name) {
				sorted = true
			}
		}
		return true
	})
	return sorted
}
