package witness

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

var (
	// ofCluster matches a host of the cluster in a line of a proxy's log.
	ofCluster = regexp.MustCompile(`\b([a-z0-9][-a-z0-9]*)\.[-a-z0-9]+\.svc\b`)
	// ofCall matches lines about calls of the applications.
	ofCall = regexp.MustCompile(`\b(?:out|in)bound\|`)
)

// controlOf returns the names of the programs of the control plane in the logs of the proxy: the hosts of the cluster that it
// names, but for those that the applications call.
func controlOf(ctx context.Context, proxy *evidence.Container) (names []string) {
	pattern := evidence.Pattern{Name: "control", Any: []string{".svc"}, Only: func(line []byte) bool { return ofCluster.Match(line) && !ofCall.Match(line) }}
	for _, l := range proxy.Logs {
		found, _, err := l.Scan(ctx, []evidence.Pattern{pattern})
		if err != nil {
			return names
		}
		for _, h := range found {
			for _, m := range ofCluster.FindAllStringSubmatch(string(h.Line.Text), 8) {
				if name := strings.TrimSuffix(m[1], "-headless"); !slices.Contains(names, name) && len(names) < mostAsked {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// Control adds to the finding about a proxy that does not get ready why a program of its control plane does not run. It
// returns false if the files beside the pod do not say so. The proxy's log, which names the control plane, is read only now.
func (r *Record) Control(ctx context.Context, proxy *evidence.Container, f *result.Finding) bool {
	if len(r.pod.Beside) == 0 {
		return false
	}
	for _, name := range controlOf(ctx, proxy) {
		if told, is := r.endedOf(name); is {
			f.Sentence = fmt.Sprintf("%s does not get ready, since %s does not run, as its own log says: %s", f.Container, name, told.Text)
			f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("end first what the log of %s says", name)}
			f.Evidence, f.Confidence = append(f.Evidence, told.Quotes...), result.Likely
			return true
		}
		if p, is := r.noneReady(name); is {
			f.Sentence = fmt.Sprintf("%s does not get ready, since no pod of %s is: %s is %s", f.Container, name, p.name, p.status)
			f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("see why pod %s is %s", p.name, p.status)}
			f.Evidence, f.Confidence = append(f.Evidence, p.quote), result.Likely
			return true
		}
	}
	return false
}
