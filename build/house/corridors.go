package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
)

// rooms are the folders in which the fields of a struct may be written by methods in at most two files. Other
// folders have a separate limit.
var rooms = []string{"internal/core/mesh", "internal/core/pod"}

// A corridor is a struct with the files whose methods write its fields. If there are many files, a change of a
// field is hard to understand. Writes are assignments through the receiver of a method to fields of the struct,
// or of structs in it.
type corridor struct {
	name  string // PATH.TYPE
	files []string
}

// corridors returns all structs with written fields, sorted by the number of files, most first.
func corridors(t *tree) ([]corridor, error) {
	checked, err := t.checked()
	if err != nil {
		return nil, err
	}
	owners := map[token.Pos]string{} // maps the position of a field to its struct; not the object, because a package may have been checked twice
	for _, o := range checked.Defs { // any order: the result is a set
		if name, ok := o.(*types.TypeName); ok && !name.IsAlias() {
			if s, ok := name.Type().Underlying().(*types.Struct); ok {
				file := t.fset.Position(name.Pos()).Filename
				for f := range s.Fields() {
					owners[f.Pos()] = path.Dir(strings.TrimPrefix(file, t.root+"/")) + "." + name.Name()
				}
			}
		}
	}
	writers := map[string]map[string]bool{}
	for _, f := range t.code() {
		for _, d := range f.syntax.Decls {
			method, ok := d.(*ast.FuncDecl)
			if !ok || method.Recv == nil || len(method.Recv.List[0].Names) == 0 {
				continue
			}
			receiver := checked.Defs[method.Recv.List[0].Names[0]]
			writes(method, func(e ast.Expr) {
				s, ok := variable(e).(*ast.SelectorExpr)
				if !ok || checked.object(root(s)) != receiver {
					return
				}
				if v, ok := checked.Uses[s.Sel].(*types.Var); ok && owners[v.Pos()] != "" {
					owner := owners[v.Pos()]
					if writers[owner] == nil {
						writers[owner] = map[string]bool{}
					}
					writers[owner][f.path] = true
				}
			})
		}
	}
	var out []corridor
	for name, files := range writers { // any order: the result is sorted
		out = append(out, corridor{name, slices.Sorted(maps.Keys(files))})
	}
	slices.SortFunc(out, func(a, b corridor) int {
		return cmp.Or(cmp.Compare(len(b.files), len(a.files)), cmp.Compare(a.name, b.name))
	})
	return out, nil
}

// writes calls the function found with each expression that a method changes: by an assignment, ++, --, clear,
// copy or delete.
func writes(method *ast.FuncDecl, found func(ast.Expr)) {
	ast.Inspect(method, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				found(e)
			}
		case *ast.IncDecStmt:
			found(n.X)
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"clear", "copy", "delete"}, id.Name) && len(n.Args) > 0 {
				found(n.Args[0])
			}
		}
		return true
	})
}

// root returns the leftmost name in an expression such as x.f[i].g.
func root(e ast.Expr) ast.Expr {
	for {
		s, ok := variable(e).(*ast.SelectorExpr)
		if !ok {
			return variable(e)
		}
		e = s.X
	}
}

// variable removes indexes, dereferences, parentheses and slices from an expression: of x.f[i] it returns x.f.
func variable(e ast.Expr) ast.Expr {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		default:
			return e
		}
	}
}

// throughFiles returns the measure that lists the structs whose fields are written in more than two files, inside
// or outside the rooms.
func throughFiles(inside bool) func(*tree) (result, error) {
	return func(t *tree) (result, error) {
		all, err := corridors(t)
		var r result
		for _, c := range all {
			folder, _, _ := strings.Cut(c.name, ".")
			if len(c.files) > 2 && inside == slices.ContainsFunc(rooms, func(room string) bool { return strings.HasPrefix(folder+"/", room+"/") }) {
				r.add(fmt.Sprintf("%s, in %d files", c.name, len(c.files)))
			}
		}
		return r, err
	}
}
