package finding

import (
	"fmt"
	"slices"
	"strings"
)

// A Patch is a change of one file. Bytes outside the edits stay the same.
type Patch struct {
	File  string `json:"file"`
	Edits []Edit `json:"edits"` // they do not overlap
}

// An Edit replaces the bytes from Start to End by Text.
type Edit struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Text  string `json:"text"`

	// From and To are Start and End as lines and columns, for people and for SARIF. They count from 1; columns
	// count characters.
	From, To Position `json:"-"`
}

// A Position is a line and a column in a text.
type Position struct{ Line, Column int }

// Apply returns text with the edits applied. It fails if an edit is outside of text or overlaps another one.
func (p *Patch) Apply(text []byte) ([]byte, error) {
	edits := slices.Clone(p.Edits)
	slices.SortStableFunc(edits, func(a, b Edit) int { return a.Start - b.Start })
	var b strings.Builder
	at := 0
	for _, e := range edits {
		if e.Start < at || e.End < e.Start || e.End > len(text) {
			return nil, fmt.Errorf("%s: the change of bytes %d to %d does not fit", p.File, e.Start, e.End)
		}
		b.Write(text[at:e.Start])
		b.WriteString(e.Text)
		at = e.End
	}
	b.Write(text[at:])
	return []byte(b.String()), nil
}
