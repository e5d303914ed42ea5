package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/startup"
)

// Durations that are assumed for containers if the behaviour sets none.
const (
	InitTakes  = 300 * time.Millisecond // an init container
	ProxyTakes = time.Second            // a mesh's proxy, until it is healthy
	JobTakes   = 10 * time.Second       // the command of a pod whose restartPolicy is not Always
)

// A Behaviour is the user's description of the behaviour of containers.
type Behaviour struct {
	Given simulate.Behaviour
	text  string
}

// ParseBehaviour parses the text of a file (--behaviour) and further lines (--with). It fails if a clause is
// invalid, or if two clauses contradict each other.
func ParseBehaviour(file, text string, lines []string) (b Behaviour, err error) {
	if _, err := simulate.Parse(text); err != nil {
		return b, fmt.Errorf("%s: %w", file, err)
	}
	for _, l := range lines {
		if _, err := simulate.Parse(l); err != nil {
			return b, fmt.Errorf("--with=%q: %w", l, err)
		}
		text += "\n" + l
	}
	b.text = text
	if b.Given, err = simulate.Parse(text); err != nil {
		return b, fmt.Errorf("--behaviour and --with together: %w", err)
	}
	return b, nil
}

// Unknown returns the first container that the behaviour names but that no pod has, or an empty string.
func (b Behaviour) Unknown(pods []Subject) string {
	for _, name := range slices.Sorted(maps.Keys(b.Given.Containers)) {
		if !slices.ContainsFunc(pods, func(s Subject) bool { return slices.Contains(s.Names(), name) }) {
			return name
		}
	}
	return ""
}

// of returns the behaviour of one pod, with defaults for everything that the user does not describe. It returns these
// assumptions as text too.
func (b Behaviour) of(s Subject) (out simulate.Behaviour, assumed []string, err error) {
	var before []string
	for _, c := range s.Plan.Containers {
		for _, clause := range b.assume(s, c) {
			before = append(before, c.Name+": "+clause)
		}
	}
	out, err = simulate.Parse(strings.Join(before, "\n") + "\n" + b.text)
	if err != nil {
		return out, nil, err
	}
	for name := range out.Containers {
		if _, i := s.Plan.Find(name); i < 0 {
			delete(out.Containers, name)
		}
	}
	for _, line := range before {
		name, _, _ := strings.Cut(line, ":")
		if !strings.Contains(line, "healthy after") || out.Containers[name].Healthy == ProxyTakes {
			assumed = append(assumed, line)
		}
	}
	return out, assumed, nil
}

// assume returns the clauses that are assumed for a container.
func (b Behaviour) assume(s Subject, c startup.Container) []string {
	given := b.Given.Containers[c.Name]
	var out []string
	lasts, ends := s.run.Lasts[c.Name]
	mains := s.run.EndsWith[c.Name]
	if len(given.Ends) == 0 && len(given.EndsWith) == 0 {
		for _, main := range mains {
			out = append(out, "ends with "+main)
		}
	}
	switch {
	case ends && len(given.Ends) == 0:
		out = append(out, fmt.Sprintf("completes after %s", lasts))
	case c.Kind == startup.Init && len(given.Ends) == 0:
		out = append(out, fmt.Sprintf("completes after %s", InitTakes))
	case s.run.Facts[c.Name].Proxy:
		out = append(out, fmt.Sprintf("healthy after %s", ProxyTakes))
	case c.Kind == startup.Plain && len(given.Ends) == 0 && len(mains) == 0 && !slices.Contains(s.endless, c.Name) && (s.pod.Restart == kubelet.Never || s.pod.Restart == kubelet.OnFailure):
		out = append(out, fmt.Sprintf("completes after %s", JobTakes))
	}
	if d, ok := s.run.Sleeps[c.Name]; ok && given.Sleeps == 0 {
		out = append(out, fmt.Sprintf("sleeps %s", d))
	}
	if d := s.pod.PreStopSleep(c.Name); d > 0 && given.PreStop == 0 {
		out = append(out, fmt.Sprintf("pre-stop takes %s", d))
	}
	if given.PostStart == (simulate.Hook{}) {
		out = append(out, s.assumeHook(c.Name)...)
	}
	return out
}

// assumeHook returns the clause for the container's postStart hook, if the manifest has one.
func (s Subject) assumeHook(container string) []string {
	h, ok := s.run.Hooks[container]
	switch {
	case !ok:
	case h.Polls == "":
		return []string{"post-start takes 0s"}
	case h.Once:
		return []string{fmt.Sprintf("post-start asks %s for 0s", h.Polls)}
	case h.GoesOn:
		return []string{fmt.Sprintf("post-start asks %s at most %s", h.Polls, h.Timeout)}
	case h.Timeout > 0:
		return []string{fmt.Sprintf("post-start asks %s for %s", h.Polls, h.Timeout)}
	case h.Polls != container:
		return []string{fmt.Sprintf("post-start asks %s for 24h", h.Polls)}
	}
	return nil
}
