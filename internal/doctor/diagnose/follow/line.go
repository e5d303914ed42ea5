package follow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/diagnose/page"
	"outrider.dev/internal/doctor/diagnose/result"
)

// A Line reports a change of a pod's diagnosis. The last line has the summary instead.
type Line struct {
	Version  string         `json:"version"` // version of the report's JSON format
	Time     time.Time      `json:"time"`    // by this machine's clock
	Pod      string         `json:"pod,omitempty"`
	Code     string         `json:"code,omitempty"` // code of the finding, or "undecided"; empty: nothing is wrong
	Sentence string         `json:"sentence,omitempty"`
	Problem  string         `json:"problem,omitempty"` // why the pod could not be read
	Report   *result.Report `json:"report,omitempty"`
	Summary  *Summary       `json:"summary,omitempty"`
}

// A Summary counts the pods that were diagnosed.
type Summary struct {
	Pods     int     `json:"pods"`
	Causes   []Count `json:"causes,omitempty"`   // most frequent first
	Problems int     `json:"problems,omitempty"` // pods that could not be read
	Complete bool    `json:"complete"`           // the roll-out is complete; false: Follow ended before
	Stuck    string  `json:"stuck,omitempty"`    // why the roll-out cannot complete
}

// A Count is the number of pods with one cause.
type Count struct {
	Code string `json:"code"`
	Pods int    `json:"pods"`
}

// Status returns the exit status: 1 if something was found or the roll-out is stuck, else 2 if any pod could not be
// read, else 0.
func (s Summary) Status() int {
	switch {
	case len(s.Causes) > 0 || s.Stuck != "":
		return 1
	case s.Problems > 0:
		return 2
	}
	return 0
}

// lineOf summarizes a report in one line.
func lineOf(r result.Report, now time.Time) Line {
	l := Line{Version: result.Version, Time: now, Pod: r.Pod, Sentence: r.Sentence, Report: &r}
	if !r.Verdict.Well() {
		l.Code = page.Cause(r)
		return l
	}
	if s := r.Start; s != nil && (s.State == result.StartReady || s.State == result.StartNotReady) {
		took := page.Took(*s)
		switch {
		case s.State == result.StartReady && s.Took.Known():
			took = "ready after " + took
		case s.State == result.StartNotReady && s.Took.Known():
			took = "not ready after" + strings.TrimPrefix(took, "not ready,")
		}
		l.Sentence = took + "; " + r.Sentence
	}
	return l
}

// said returns the part of a line that distinguishes new lines from repeated ones. It does not contain the time for
// which a pod has not been ready, because that time always changes.
func (l Line) said() string {
	if l.Report != nil && l.Report.Verdict.Well() && l.Report.Start != nil {
		return string(l.Report.Start.State) + l.Report.Sentence
	}
	return l.Code + l.Sentence + l.Problem
}

// summary counts pods by cause.
func summary(pods, problems int, causes map[string]int) Summary {
	s := Summary{Pods: pods, Problems: problems}
	for _, code := range slices.Sorted(maps.Keys(causes)) {
		s.Causes = append(s.Causes, Count{code, causes[code]})
	}
	slices.SortStableFunc(s.Causes, func(a, b Count) int { return cmp.Compare(b.Pods, a.Pods) })
	return s
}

// Write writes a line as text, or as a JSON object.
func (l Line) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w) // Encode ends each object with a newline
		e.SetEscapeHTML(false)
		return e.Encode(l)
	}
	text := l.Sentence
	switch {
	case l.Summary != nil:
		text = l.Summary.text()
	case l.Problem != "":
		text = l.Pod + "  cannot be looked at: " + l.Problem
	default:
		if text = l.Pod + "  " + text; l.Code != "" {
			text += " (" + l.Code + ")"
		}
	}
	text = visible.Plain(strings.Join(strings.Fields(text), " "))
	_, err := fmt.Fprintf(w, "%s  %s\n", l.Time.Local().Format(time.TimeOnly), text)
	return err
}

func (s Summary) text() string {
	out := "ended: "
	switch {
	case s.Stuck != "":
		out = "the roll-out does not complete, " + s.Stuck + ": "
	case s.Complete:
		out = "the roll-out is complete: "
	}
	pods := "pods"
	if s.Pods == 1 {
		pods = "pod"
	}
	out += fmt.Sprintf("%d %s diagnosed", s.Pods, pods)
	for _, c := range s.Causes {
		out += fmt.Sprintf(", %d %s", c.Pods, c.Code)
	}
	if len(s.Causes) == 0 {
		out += ", nothing found"
	}
	if s.Problems > 0 {
		out += fmt.Sprintf(", %d could not be looked at", s.Problems)
	}
	return out
}
