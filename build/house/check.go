package main

import (
	"go/ast"
	"go/constant"
	"go/types"
	"path"
	"strings"

	"golang.org/x/tools/go/packages"
)

// standard lists the packages of the standard library whose types and functions the rules in tests.go look for.
var standard = []string{"context", "net", "net/http", "net/http/httptest", "os/exec", "testing", "testing/synctest", "time"}

// checked holds the types of the packages of all modules below a folder. It type-checks the files of these
// packages, with the packages in standard; packages of other modules are treated as empty, so that they need not
// be downloaded.
type checked struct {
	*tree
	types.Info
	known   map[string]*types.Package // by import path
	code    map[string][]*ast.File    // the files that are not tests, by folder
	bubbles map[string]bool           // functions that call synctest.Test
}

func check(t *tree) (*checked, error) {
	std, err := packages.Load(&packages.Config{Dir: t.root, Mode: packages.NeedName | packages.NeedTypes}, standard...)
	if err != nil {
		return nil, err
	}
	c := &checked{t, types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}},
		map[string]*types.Package{}, map[string][]*ast.File{}, map[string]bool{}}
	for _, p := range std {
		c.known[p.PkgPath] = p.Types
	}
	both := map[[2]string][]*ast.File{} // the files of each package, by folder and name: a folder may also have an external test package
	for _, f := range t.files {
		if f.syntax != nil {
			k := [2]string{path.Dir(f.path), f.syntax.Name.Name}
			both[k] = append(both[k], f.syntax)
			if !strings.HasSuffix(f.path, "_test.go") {
				c.code[k[0]] = append(c.code[k[0]], f.syntax)
			}
		}
	}
	for k, files := range both {
		c.types(k[1], files)
		for _, f := range files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && c.has(fn, nil, "testing/synctest.Test") {
					c.bubbles[c.Defs[fn.Name].(*types.Func).FullName()] = true
				}
			}
		}
	}
	return c, nil
}

// types type-checks a package. It ignores errors, because packages that are treated as empty cause some.
func (c *checked) types(path string, files []*ast.File) *types.Package {
	p, _ := (&types.Config{Importer: c, Error: func(error) {}}).Check(path, c.fset, files, &c.Info)
	return p
}

// Import implements types.Importer: it returns a package of the standard library, a package of the tree without
// its tests, or an empty package. The part of an import path after the module is the path of the folder.
func (c *checked) Import(path string) (*types.Package, error) {
	if p, ok := c.known[path]; ok {
		return p, nil
	}
	c.known[path] = types.NewPackage(path, path[strings.LastIndex(path, "/")+1:]) // used for a package of another module, and for this one while it is being checked
	c.known[path].MarkComplete()
	if host, folder, _ := strings.Cut(path, "/"); strings.Contains(host, ".") && c.code[folder] != nil {
		c.known[path] = c.types(path, c.code[folder])
	}
	return c.known[path], nil
}

// called returns the full name of the function or method that a call expression calls, such as "time.After" or
// "(*os/exec.Cmd).Start", or "".
func (c *checked) called(n ast.Node) string {
	if f, ok := c.Uses[name(n)].(*types.Func); ok {
		return f.FullName()
	}
	return ""
}

// name returns the identifier of the function or method that a call expression calls, or nil.
func name(n ast.Node) *ast.Ident {
	if call, ok := n.(*ast.CallExpr); ok {
		switch f := call.Fun.(type) {
		case *ast.Ident:
			return f
		case *ast.SelectorExpr:
			return f.Sel
		}
	}
	return nil
}

// object returns the object that an identifier names, or nil for other expressions.
func (c *checked) object(e ast.Expr) types.Object {
	id, _ := e.(*ast.Ident)
	return c.ObjectOf(id)
}

// short reports whether an expression is a constant duration above zero and below a minute.
func (c *checked) short(e ast.Expr) bool {
	n, _ := constant.Int64Val(constant.ToInt(c.Types[e].Value))
	return 0 < n && n < 60e9
}
