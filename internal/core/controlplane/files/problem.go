package files

import (
	"cmp"
	"fmt"
	"strings"
)

// A Problem is why a manifest is ignored, in whole or in part.
type Problem struct {
	Severity string // begins its sentence; empty: an error
	File     string // below the folder
	Document int    // of the file; 1 is the first; 0: the file as a whole
	Line     int    // of the file; 0: no line of it
	Object   string // kind namespace/name
	Field    string // its path in the object
	Message  string // what is wrong, and what is valid
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Severity + p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Document > 1 {
		fmt.Fprintf(&b, ": document %d", p.Document)
	}
	for _, part := range []string{p.Object, p.Field} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	return b.String() + ": " + p.Message
}

func (p Problem) compare(q Problem) int {
	return cmp.Or(
		cmp.Compare(p.File, q.File), cmp.Compare(p.Document, q.Document), cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.Field, q.Field), cmp.Compare(p.Message, q.Message),
	)
}
