package evidence

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// userTimezone matches the option of Java by which a program has a zone of its own.
var userTimezone = regexp.MustCompile(`-Duser\.timezone=([\w/+-]+)`)

// declaredZone returns the offset of the zone that the environment of a container sets for its programs, at an instant,
// with the setting. It returns false if none is set, or this machine does not know the zone.
func (p *Pod) declaredZone(container string, at time.Time) (offset time.Duration, setting string, known bool) {
	if p.Object == nil {
		return 0, "", false
	}
	for _, c := range slices.Concat(p.Object.Spec.InitContainers, p.Object.Spec.Containers) {
		if c.Name != container {
			continue
		}
		name := ""
		if i := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "TZ" && v.Value != "" }); i >= 0 {
			name = strings.TrimPrefix(c.Env[i].Value, ":")
			setting = "TZ=" + name
		}
		texts := slices.Concat(c.Command, c.Args)
		for _, v := range c.Env {
			texts = append(texts, v.Value)
		}
		for _, text := range texts {
			if m := userTimezone.FindStringSubmatch(text); m != nil {
				name, setting = m[1], m[0]
			}
		}
		zone, err := time.LoadLocation(name)
		if name == "" || name == "Local" || err != nil {
			return 0, "", false
		}
		_, seconds := at.In(zone).Zone()
		return time.Duration(seconds) * time.Second, setting, true
	}
	return 0, "", false
}
