package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// A file is a Go source file with its syntax tree.
type file struct {
	name   string
	source string
	fset   *token.FileSet
	tree   *ast.File
}

func parse(name string, source []byte) (file, error) {
	f := file{name: name, source: string(source), fset: token.NewFileSet()}
	tree, err := parser.ParseFile(f.fset, name, source, parser.SkipObjectResolution)
	f.tree = tree
	return f, err
}

// A span is a mutant with the offsets of its text in the file.
type span struct {
	Mutant
	name       string
	start, end int
	statement  bool
}

// rewrite returns the source in which each mutant is selected at run time.
func (f file) rewrite(list map[string]Mutant) ([]byte, error) {
	var spans []span
	for _, name := range slices.Sorted(maps.Keys(list)) {
		s, err := f.find(name, list[name])
		if err != nil {
			return nil, fmt.Errorf("mutant %q: %w", name, err)
		}
		spans = append(spans, s)
	}
	// If two spans begin at the same offset, the longer comes first, because it contains the shorter.
	slices.SortStableFunc(spans, func(a, b span) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})
	return []byte(f.render(0, len(f.source), spans)), nil
}

// render returns the text between two offsets, in which each span is replaced by a choice. Spans are nodes of a
// syntax tree, so two of them are either nested or disjoint.
func (f file) render(start, end int, spans []span) string {
	var b strings.Builder
	for len(spans) > 0 {
		s, inside := spans[0], 1
		for inside < len(spans) && spans[inside].start < s.end {
			inside++
		}
		b.WriteString(f.source[start:s.start])
		b.WriteString(s.choice(f.render(s.start, s.end, spans[1:inside])))
		start, spans = s.end, spans[inside:]
	}
	b.WriteString(f.source[start:end])
	return b.String()
}

// choice returns Go code that runs the original text or, if the mutant is selected, the mutant's replacement.
func (s span) choice(original string) string {
	switch {
	case s.statement:
		return fmt.Sprintf("if mutantIs(%q) { %s } else { %s }", s.name, s.To, original)
	case isCondition(s.From) || isCondition(s.To):
		return fmt.Sprintf("func() bool { if mutantIs(%q) { return %s }; return %s }()", s.name, s.To, original)
	default:
		return fmt.Sprintf("mutantOr(%q, %s, %s)", s.name, original, s.To)
	}
}

// isCondition reports whether the text of an expression is recognizable as a condition.
func isCondition(text string) bool {
	e, err := parser.ParseExpr(text)
	if err != nil {
		return false
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name == "true" || e.Name == "false"
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	case *ast.BinaryExpr:
		return e.Op == token.LAND || e.Op == token.LOR || e.Op.Precedence() == token.EQL.Precedence()
	}
	return false
}

// find returns the span of a mutant. It fails unless From is exactly one expression or statement of the file.
func (f file) find(name string, m Mutant) (span, error) {
	first, last := 0, len(f.source)
	if m.In != "" {
		if n := strings.Count(f.source, m.In); n != 1 {
			return span{}, fmt.Errorf("%s has %q %d times, must have it once", f.name, m.In, n)
		}
		first = strings.Index(f.source, m.In)
		last = first + len(m.In)
	}
	var found []span
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		start, end := f.offset(n.Pos()), f.offset(n.End())
		if start < first || end > last || f.source[start:end] != m.From {
			return true
		}
		// A call statement is found twice, as a statement and as an expression. The statement is taken, because
		// the expression may have no value. A KeyValueExpr is not an expression in Go, only in package ast.
		_, isStatement := n.(ast.Stmt)
		_, isExpr := n.(ast.Expr)
		_, isPair := n.(*ast.KeyValueExpr)
		if isStatement || isExpr && !isPair {
			if k := len(found); k == 0 || found[k-1].start != start {
				found = append(found, span{m, name, start, end, isStatement})
			}
		}
		return true
	})
	if len(found) != 1 {
		return span{}, fmt.Errorf("%s has %q %d times as a whole expression or statement, must have it once", f.name, m.From, len(found))
	}
	return found[0], nil
}

func (f file) offset(p token.Pos) int { return f.fset.Position(p).Offset }
