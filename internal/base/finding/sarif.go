package finding

import (
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"outrider.dev/internal/base/cli/visible"
)

// A Tool describes the program that created the findings.
type Tool struct {
	Name    string
	Version string
	Pages   string // base URL of the pages about kinds, ending with a slash
	Kinds   []Kind
}

// WriteJSON writes findings as a JSON list, which is never null.
func WriteJSON(w io.Writer, all []Finding) error {
	if all == nil {
		all = []Finding{}
	}
	return encode(w, all)
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

const sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

// An object is a JSON object of SARIF 2.1.0 (OASIS, 27 March 2020).
type object map[string]any

func message(text string) object { return object{"text": visible.Plain(text)} }

func location(file string) object { return object{"uri": fileURI(file)} }

// WriteSARIF writes findings as a SARIF 2.1.0 log of one run. tool.Kinds must contain the kind of each finding.
func WriteSARIF(w io.Writer, tool Tool, all []Finding) error {
	rules, results, index := []object{}, []object{}, map[Code]int{}
	for i, k := range tool.Kinds {
		index[k.Code] = i
		rules = append(rules, object{"id": k.Code, "shortDescription": message(k.Title), "fullDescription": message(k.Explanation),
			"helpUri": tool.Pages + k.Doc, "defaultConfiguration": object{"level": k.Severity}})
	}
	for _, f := range all {
		r := f.sarif()
		r["ruleIndex"] = index[f.Code]
		results = append(results, r)
	}
	driver := object{"name": tool.Name, "version": tool.Version, "rules": rules}
	run := object{"tool": object{"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
	return encode(w, object{"$schema": sarifSchema, "version": "2.1.0", "runs": []object{run}})
}

func (f Finding) sarif() object {
	place := object{"logicalLocations": []object{{"fullyQualifiedName": strings.TrimSuffix(f.Object.String()+"/"+f.Field, "/"), "kind": "resource"}}}
	if f.File != "" {
		physical := object{"artifactLocation": location(f.File)}
		if f.Line > 0 {
			physical["region"] = f.region()
		}
		place["physicalLocation"] = physical
	}
	r := object{"ruleId": f.Code, "level": f.Severity, "message": message(f.message()), "locations": []object{place},
		// The fingerprint omits the line number, because that changes with every edit above the line.
		"partialFingerprints": object{"outrider/v1": strings.Join([]string{string(f.Code), f.Object.String(), f.Field, f.Evidence}, "|")}}
	if f.Fix != nil {
		r["fixes"] = []object{f.Fix.sarif(f.Remedy.Sentence)}
	}
	return r
}

// region returns the position of the finding in its file. Line and Column must be known.
func (f Finding) region() object {
	return object{"startLine": f.Line, "startColumn": f.Column, "endLine": f.Line, "endColumn": f.Column + f.Width, "snippet": message(f.Text)}
}

func (f Finding) message() string {
	parts := slices.DeleteFunc([]string{f.Title, f.Why, f.Remedy.Sentence}, func(s string) bool { return s == "" })
	for i, p := range parts {
		parts[i] = strings.TrimSuffix(p, ".") + "."
	}
	return strings.Join(parts, " ")
}

func (p *Patch) sarif(description string) object {
	var replacements []object
	for _, e := range p.Edits {
		r := object{"deletedRegion": object{"startLine": e.From.Line, "startColumn": e.From.Column, "endLine": e.To.Line, "endColumn": e.To.Column}}
		if e.Text != "" {
			r["insertedContent"] = message(e.Text)
		}
		replacements = append(replacements, r)
	}
	change := object{"artifactLocation": location(p.File), "replacements": replacements}
	return object{"description": message(description), "artifactChanges": []object{change}}
}

// fileURI converts a file name to a URI reference for SARIF: relative names stay relative.
func fileURI(name string) string {
	u := url.URL{Path: filepath.ToSlash(name)}
	if filepath.IsAbs(name) {
		u.Scheme = "file"
	}
	return u.String()
}
