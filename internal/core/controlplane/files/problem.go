package files

import (
	"cmp"
	"fmt"
	"strings"

	"outrider.dev/internal/base/contract"
)

// A Problem is the reason why a manifest is ignored, in whole or in part.
type Problem struct {
	Severity string // prefix of the message; empty: the problem is an error
	File     string // relative to the root folder
	Document int    // number of the document within the file, from 1; 0: the file as a whole
	Line     int    // line in the file; 0: unknown
	Object   string // the object as "kind namespace/name"
	Field    string // path of the field within the object
	Message  string // description of the mistake, and the valid values
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

// effect says whether the manifest is used, as the message of the log's line about p.
func (p Problem) effect() string {
	if p.Severity == contract.WarningPrefix {
		return "manifest used, but not all of it has an effect"
	}
	return "manifest not used"
}

func (p Problem) compare(q Problem) int {
	return cmp.Or(
		cmp.Compare(p.File, q.File), cmp.Compare(p.Document, q.Document), cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.Field, q.Field), cmp.Compare(p.Message, q.Message),
	)
}
