// Package result has the form of a diagnosis: what is found of a pod, how sure that is, and what ends it.
package result

import (
	"fmt"
	"path"
	"slices"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/evidence"
)

// Version is the version of a report's JSON format.
const Version = "outrider.dev/diagnosis/v1alpha1"

// A Verdict is the result of a diagnosis.
type Verdict string

// The verdicts.
const (
	Nothing   Verdict = "nothing"   // all containers are recognized as healthy, or have done their work
	Starting  Verdict = "starting"  // nothing is wrong yet
	Found     Verdict = "found"     // the first finding is the cause
	Undecided Verdict = "undecided" // the findings are suspects
)

// Well reports whether nothing is wrong, or nothing yet.
func (v Verdict) Well() bool { return v == Nothing || v == Starting }

// A Confidence is the degree of certainty of a finding.
type Confidence string

// Degrees of certainty, lowest first.
const (
	Possible Confidence = "possible" // the evidence fits this cause, and others too
	Likely   Confidence = "likely"   // no other known cause fits
	Certain  Confidence = "certain"  // the evidence excludes other causes
)

// Degree returns the place of a confidence in their order; 0: the lowest.
func (c Confidence) Degree() int { return slices.Index([]Confidence{Possible, Likely, Certain}, c) }

// A Report is the diagnosis of one pod.
type Report struct {
	Version  string    `json:"version"`
	Pod      string    `json:"pod"` // NAMESPACE/NAME; of a workload that has no pods KIND NAMESPACE/NAME
	Verdict  Verdict   `json:"verdict"`
	Sentence string    `json:"sentence"`
	Findings []Finding `json:"findings,omitempty"` // most certain first
	Decide   string    `json:"decide,omitempty"`   // the command that would decide an undecided diagnosis
	Timeline []Moment  `json:"timeline,omitempty"`
	Missing  []string  `json:"missing,omitempty"` // evidence that could not be read, and why
	Notes    []string  `json:"notes,omitempty"`   // contradictions in the evidence
	Start    *Start    `json:"start,omitempty"`   // the time until the pod was ready, and its phases
	Tracks   []Track   `json:"tracks,omitempty"`  // runs and log lines of the containers, for pictures
	Group    *Group    `json:"group,omitempty"`   // in the first report of each group, if several pods were diagnosed
	SameAs   string    `json:"sameAs,omitempty"`  // in the other reports of a group: Pod of the first one
}

// A Group is a cause with all pods, of those that were diagnosed together, that have it.
type Group struct {
	Sentence  string           `json:"sentence"` // "…" stands for what differs between the pods
	Remedy    string           `json:"remedy,omitempty"`
	Pods      int              `json:"pods"`                // that have this cause; 0: no pod can be created
	Of        int              `json:"of"`                  // pods of the same workloads
	Workloads []string         `json:"workloads,omitempty"` // KIND NAMESPACE/NAME, those with the most pods of the group first
	Since     evidence.Time    `json:"since,omitzero"`      // the first sign of it
	Earlier   bool             `json:"earlier,omitempty"`   // it may have begun before Since: older runs are not in the evidence
	Common    []string         `json:"common,omitempty"`    // what these pods have in common, and others do not
	Changes   []evidence.Quote `json:"changes,omitempty"`   // what changed before, the latest first; without a time: it is not known when
	Members   []string         `json:"members"`             // the pods, or the workloads
}

// A Finding is one cause, or one suspect.
type Finding struct {
	Code       finding.Code     `json:"code"`
	Sentence   string           `json:"sentence"`
	Container  string           `json:"container,omitempty"`
	Confidence Confidence       `json:"confidence"`
	Evidence   []evidence.Quote `json:"evidence"`
	Against    []evidence.Quote `json:"against,omitempty"` // evidence against this cause
	Disproof   string           `json:"disproof"`          // an observation that would disprove this cause
	Remedy     finding.Remedy   `json:"remedy"`
	Patch      string           `json:"patch,omitempty"`  // patch of the workload, for kubectl patch
	Change     string           `json:"change,omitempty"` // part of a manifest that changes, of an object that takes no patch
	Replay     *Replay          `json:"replay,omitempty"`

	Rank int  `json:"-"` // place of its rule among the rules: an earlier one may explain it
	Over bool `json:"-"` // it was over before the end of the run, which has another cause
}

// Quotes reports whether a finding of the report quotes a file, by its path or the last part of it.
func (r *Report) Quotes(file string) bool {
	is := func(q evidence.Quote) bool { return q.Source.File == file || path.Base(q.Source.File) == file }
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return slices.ContainsFunc(f.Evidence, is) || slices.ContainsFunc(f.Against, is)
	})
}

// Tried describes what the remedy does in the model of the kubelet. It is empty if that was not tried.
func (f Finding) Tried() string {
	if f.Replay == nil {
		return ""
	}
	return f.Replay.Tried()
}

// Instant formats a time with the precision that its error allows. An unknown time becomes the word "that", as in
// "before that". A time of a zone that is not known is no time in UTC.
func Instant(t evidence.Time) string {
	switch {
	case !t.Known():
		return "that"
	case t.Clock != evidence.NodeClock && t.Clock != evidence.APIClock && t.Clock != "":
		return t.At.UTC().Format("15:04:05.000") + " (zone not known)"
	case t.Error >= 2e9:
		return fmt.Sprintf("%s (to within %s)", t.At.UTC().Format("15:04:05Z"), t.Error.Round(1e9))
	case t.Error >= 1e9:
		return t.At.UTC().Format("15:04:05Z")
	}
	return t.At.UTC().Format("15:04:05.000Z")
}
