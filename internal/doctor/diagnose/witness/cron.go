package witness

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

var (
	// ofCron matches the name of a Job of a CronJob: the minutes since 1970 come after the CronJob's name.
	ofCron = regexp.MustCompile(`^(.+)-\d{8,11}$`)
	// forbidding matches what says that a CronJob starts no Job beside another: its description, or an event.
	forbidding = regexp.MustCompile(`(?i)\bconcurrency ?policy"?:\s*"?forbid\b|\bJobAlreadyActive\b`)
)

// Forbids adds to the finding about a pod that does not end that its CronJob starts no other Job meanwhile.
func (r *Record) Forbids(f *result.Finding, pod *corev1.Pod, owners []evidence.Owner) {
	job := pod.Labels["job-name"]
	for _, o := range owners {
		if o.Kind == "Job" {
			job = o.Name
		}
	}
	m := ofCron.FindStringSubmatch(job)
	if m == nil {
		return
	}
	name := regexp.MustCompile(`(?:^|[\s/"])` + regexp.QuoteMeta(m[1]) + `(?:["\s,]|$)`)
	for _, t := range r.texts {
		is, line := false, 0
		for i, text := range t.lines {
			if len(text) > 2000 {
				continue
			}
			is = is || name.MatchString(text)
			if line == 0 && forbidding.MatchString(text) {
				line = i + 1
			}
		}
		if is && line > 0 {
			f.Sentence = strings.TrimSuffix(f.Sentence, ".") + fmt.Sprintf("; meanwhile CronJob %s starts no other (Forbid)", m[1])
			f.Evidence = append(f.Evidence, t.quote(line, r.secrets))
			return
		}
	}
}
