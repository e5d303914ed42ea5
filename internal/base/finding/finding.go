// Package finding defines how Outrider reports problems. A finding says what is wrong, where, with which
// evidence, why it matters, and which command fixes it.
//
// Lint, check and diagnose create findings, each of a [Kind]. This package sorts them and writes them as text for
// people, as JSON, and as SARIF for tools that show findings in code.
//
// The package contains no rules, does no I/O except to the writers that it is given, and imports only the
// standard library.
package finding

import (
	"cmp"
	"slices"
)

// A Code is the name of a kind of finding. Codes are stable, because users switch findings off by their codes.
type Code string

// Severity is the seriousness of a finding.
type Severity string

// The severities, in ascending order.
const (
	Note    Severity = "note"    // worth knowing
	Warning Severity = "warning" // it works, but not as the user expects, or not always
	Error   Severity = "error"   // it cannot work
)

// Severities lists all severities in ascending order.
var Severities = []Severity{Note, Warning, Error}

// AtLeast reports whether a severity is as high as another one, or higher.
func (s Severity) AtLeast(other Severity) bool {
	return slices.Index(Severities, s) >= slices.Index(Severities, other)
}

// A Kind describes the findings with one code.
type Kind struct {
	Code        Code     `json:"code"`
	Title       string   `json:"title"`
	Severity    Severity `json:"severity"`    // the usual severity; a finding may have another one
	Explanation string   `json:"explanation"` // paragraphs with empty lines between
	Doc         string   `json:"doc"`         // page and anchor
}

// An Entry is an entry of the catalogue of all kinds: a kind, the commands that find it, and what to do about it.
type Entry struct {
	Kind
	By []string `json:"by"`
	Do string   `json:"do"` // Markdown, with commands in sh blocks
}

// A Finding is one problem of an object.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"` // one sentence with the names of the things involved
	Object   Object   `json:"object"`
	Place    `json:",omitempty"`
	Field    string `json:"field,omitempty"`    // path of the field in the object
	Evidence string `json:"evidence,omitempty"` // the value found there, verbatim
	Why      string `json:"why,omitempty"`      // the consequence
	Remedy   Remedy `json:"remedy"`
	Source   string `json:"source,omitempty"` // source of this knowledge: a URL, or "measured: ..."
	Fix      *Patch `json:"fix,omitempty"`
}

// An Object identifies the object that a finding is about.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

func (o Object) String() string {
	switch {
	case o.Name == "":
		return o.Kind
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// A Place is a position in a file. Lines and columns count from 1, columns in characters; 0 means unknown.
type Place struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Width  int    `json:"-"` // of the evidence, in characters
	Text   string `json:"-"` // the line; of a very long line only the part with the evidence

	Skipped int `json:"-"` // number of characters of the line before Text
}

// A Remedy describes how to fix the problem.
type Remedy struct {
	Sentence string `json:"sentence,omitempty"`
	Command  string `json:"command,omitempty"` // ready to paste into a shell
}

// Sort orders findings by file, position and code, because a person reads a file from top to bottom.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Title, b.Title))
	})
}

// Select returns the findings that are at least as severe as s.
func Select(all []Finding, s Severity) []Finding {
	var out []Finding
	for _, f := range all {
		if f.Severity.AtLeast(s) {
			out = append(out, f)
		}
	}
	return out
}
