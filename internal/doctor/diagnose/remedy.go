package diagnose

import (
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/replay"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// wait adds to a finding the remedy that makes an application wait for its proxy, and the result of a replay in the
// model of the kubelet.
func (s *subject) wait(f *result.Finding, app *evidence.Container, y calls.Call, p remedies.Purpose) {
	if by := s.remedy(f, p, s.Proxy.Name, app.Name, y.To.Port); by != "" && s.EffectOf(y).Ended != nil && (s.Object.Spec.RestartPolicy != "" || !s.Omitted.Meta) { // else there is no restart that the remedy would spare
		f.Replay = replay.Of(s.Pod, s.Calls, y, by)
	}
}

// shaped returns the rule about the structure of a pod, with the remedies.
func shaped(find func(*chain.Case) []chain.Found) rule {
	return func(s *subject) (out []result.Finding) {
		for _, x := range find(s.Case) {
			if x.Serves != "" {
				s.remedy(&x.Finding, x.Purpose, x.Serves, x.Container, x.Port)
			}
			out = append(out, x.Finding)
		}
		return out
	}
}

// startPurpose returns the purpose of a remedy for the start of an application: in a pod that should end, the proxy has
// to end too.
func (s *subject) startPurpose() remedies.Purpose {
	if s.ShouldEnd() {
		return remedies.JobStart
	}
	return remedies.Start
}

// remedy adds a remedy to a finding that changes the order of a proxy, or of another container that serves the
// application, and the application. It returns the mechanism by which the order is kept at the start; empty: none keeps
// it.
func (s *subject) remedy(f *result.Finding, p remedies.Purpose, proxy, app string, port uint16) startup.Mechanism {
	image := ""
	if spec := s.Spec(proxy); spec != nil {
		image = spec.Image
	}
	a := remedies.Of(remedies.Case{Purpose: p, Pod: s.Object, Owners: s.Owners, Proxy: proxy, Image: image, App: app, Port: port, Works: s.ShouldEnd() && s.Works(app), Unowned: s.Omitted.Meta && len(s.Owners) == 0})
	f.Remedy = finding.Remedy{Sentence: a.Sentence}
	if a.Command != "" {
		f.Remedy.Command = s.Kubectl("%s", a.Command)
	}
	f.Patch, f.Change = a.Patch, a.Change
	s.maskRemedy(f)
	return a.By
}

// maskRemedy masks what looks like a secret in a remedy: it goes on with the annotations that the pod has.
func (s *subject) maskRemedy(f *result.Finding) {
	masked := false
	for _, text := range []*string{&f.Remedy.Sentence, &f.Patch, &f.Change} {
		var shown strings.Builder
		for line := range strings.Lines(*text) {
			line, end := strings.CutSuffix(line, "\n")
			shown.WriteString(s.Show([]byte(line)))
			if end {
				shown.WriteByte('\n')
			}
		}
		masked = masked || shown.String() != *text
		*text = shown.String()
	}
	if masked {
		f.Remedy.Sentence += "; what looks like a secret is masked here, --show-secrets shows it"
		f.Remedy.Command = "" // it would write the mask
	}
}

// ownerKind returns the kind of the object that made the pod directly, in lower case; "pod" if there is none.
func (s *subject) ownerKind() string {
	if len(s.Owners) > 0 {
		return strings.ToLower(s.Owners[0].Kind)
	}
	return "pod"
}
