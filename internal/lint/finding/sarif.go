package finding

import (
	"cmp"
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// A Tool made the findings.
type Tool struct {
	Name    string
	Version string
	Pages   string // where the kinds' pages are, with a slash at the end
	Kinds   []Kind
}

// WriteJSON writes findings as a list, which is never null.
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

// The parts of SARIF 2.1.0 that are written (OASIS, 27 March 2020).
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		Results    []sarifResult `json:"results"`
		ColumnKind string        `json:"columnKind"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string       `json:"id"`
		Short   sarifMessage `json:"shortDescription"`
		Full    sarifMessage `json:"fullDescription"`
		HelpURI string       `json:"helpUri,omitempty"`
		Default sarifLevel   `json:"defaultConfiguration"`
	}
	sarifLevel struct {
		Level string `json:"level"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string            `json:"ruleId"`
		RuleIndex int               `json:"ruleIndex"`
		Level     string            `json:"level"`
		Message   sarifMessage      `json:"message"`
		Locations []sarifLocation   `json:"locations,omitempty"`
		Prints    map[string]string `json:"partialFingerprints"`
		Fixes     []sarifFix        `json:"fixes,omitempty"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int           `json:"startLine"`
		StartColumn int           `json:"startColumn,omitempty"`
		EndLine     int           `json:"endLine,omitempty"`
		EndColumn   int           `json:"endColumn,omitempty"`
		Snippet     *sarifMessage `json:"snippet,omitempty"`
	}
	sarifLogical struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
	sarifFix struct {
		Description sarifMessage  `json:"description"`
		Changes     []sarifChange `json:"artifactChanges"`
	}
	sarifChange struct {
		Artifact     sarifArtifact      `json:"artifactLocation"`
		Replacements []sarifReplacement `json:"replacements"`
	}
	sarifReplacement struct {
		Deleted  sarifRegion   `json:"deletedRegion"`
		Inserted *sarifMessage `json:"insertedContent,omitempty"`
	}
)

const sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

// WriteSARIF writes findings as a SARIF 2.1.0 log of one run. Findings whose code is not
// among the tool's kinds get a bare rule of their own.
func WriteSARIF(w io.Writer, tool Tool, all []Finding) error {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{},
		Tool: sarifTool{sarifDriver{Name: tool.Name, Version: tool.Version, Rules: []sarifRule{}}}}
	index := map[Code]int{}
	add := func(k Kind) {
		index[k.Code] = len(run.Tool.Driver.Rules)
		r := sarifRule{ID: string(k.Code), Short: sarifMessage{k.Title}, Full: sarifMessage{cmp.Or(k.Explanation, k.Title)}, Default: sarifLevel{string(k.Severity)}}
		if k.Doc != "" {
			r.HelpURI = tool.Pages + k.Doc
		}
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, r)
	}
	for _, k := range tool.Kinds {
		add(k)
	}
	for _, f := range all {
		if _, known := index[f.Code]; !known {
			add(Kind{Code: f.Code, Title: string(f.Code), Severity: f.Severity, Explanation: f.Why})
		}
		run.Results = append(run.Results, f.sarif(index[f.Code]))
	}
	return encode(w, sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}})
}

func (f Finding) sarif(rule int) sarifResult {
	r := sarifResult{RuleID: string(f.Code), RuleIndex: rule, Level: string(f.Severity), Message: sarifMessage{f.message()},
		// The line is left out: it changes with every edit above it.
		Prints: map[string]string{"outrider/v1": strings.Join([]string{string(f.Code), f.Object.String(), f.Field, f.Evidence}, "|")}}
	l := sarifLocation{Logical: []sarifLogical{{FullyQualifiedName: strings.TrimSuffix(f.Object.String()+"/"+f.Field, "/"), Kind: "resource"}}}
	if f.File != "" {
		l.Physical = &sarifPhysical{Artifact: sarifArtifact{fileURI(f.File)}}
		if f.Line > 0 {
			l.Physical.Region = &sarifRegion{StartLine: f.Line, StartColumn: f.Column}
			if f.Column > 0 && f.Width > 0 {
				l.Physical.Region.EndLine, l.Physical.Region.EndColumn = f.Line, f.Column+f.Width
			}
			if f.Text != "" {
				l.Physical.Region.Snippet = &sarifMessage{f.Text}
			}
		}
	}
	r.Locations = []sarifLocation{l}
	if f.Fix != nil {
		r.Fixes = []sarifFix{f.Fix.sarif(f.Remedy.Sentence)}
	}
	return r
}

func (f Finding) message() string {
	parts := slices.DeleteFunc([]string{f.Title, f.Why, f.Remedy.Sentence}, func(s string) bool { return s == "" })
	for i, p := range parts {
		parts[i] = strings.TrimSuffix(p, ".") + "."
	}
	return strings.Join(parts, " ")
}

func (p *Patch) sarif(description string) sarifFix {
	c := sarifChange{Artifact: sarifArtifact{fileURI(p.File)}}
	for _, e := range p.Edits {
		r := sarifReplacement{Deleted: sarifRegion{StartLine: e.From.Line, StartColumn: e.From.Column, EndLine: e.To.Line, EndColumn: e.To.Column}}
		if e.Text != "" {
			r.Inserted = &sarifMessage{e.Text}
		}
		c.Replacements = append(c.Replacements, r)
	}
	return sarifFix{Description: sarifMessage{cmp.Or(description, "the fix")}, Changes: []sarifChange{c}}
}

// fileURI is a reference in SARIF's form: relative names stay relative.
func fileURI(name string) string {
	u := url.URL{Path: filepath.ToSlash(name)}
	if filepath.IsAbs(name) {
		u.Scheme = "file"
	}
	return u.String()
}
