package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/model/kubelet"
	"outrider.dev/internal/model/simulate"
	"outrider.dev/startup"
)

// What is assumed of containers of which nothing is said.
const (
	initTakes  = 300 * time.Millisecond // an init container
	proxyTakes = time.Second            // a mesh's proxy, to be healthy
	jobTakes   = 10 * time.Second       // the command of a pod that does not always restart
)

// A world is what the user says of how containers behave.
type world struct {
	text string
	said simulate.Behaviour
}

// readWorld reads the behaviour file, if there is one, and the lines of --with.
func readWorld(cmd *cobra.Command, file string, lines []string) (world, error) {
	var w world
	if file != "" {
		name, data, err := readText(cmd, file)
		if err != nil {
			return w, &cli.UsageError{Err: err}
		}
		if _, err := simulate.Parse(string(data)); err != nil {
			return w, &cli.UsageError{Err: fmt.Errorf("%s: %w", name, err), Hint: "outrider simulate --help lists what can be said"}
		}
		w.text = string(data)
	}
	for _, l := range lines {
		w.text += "\n" + l
		if _, err := simulate.Parse(l); err != nil {
			return w, &cli.UsageError{Err: fmt.Errorf("--with=%q: %w", l, err), Hint: "outrider simulate --help lists what can be said"}
		}
	}
	var err error
	if w.said, err = simulate.Parse(w.text); err != nil {
		return w, &cli.UsageError{Err: fmt.Errorf("--behaviour and --with together: %w", err)}
	}
	return w, nil
}

// unknown refuses a behaviour of a container that none of the pods has.
func (w world) unknown(pods []running) error {
	var have []string
	for _, p := range pods {
		have = append(have, p.names()...)
	}
	for name := range w.said.Containers {
		if !slices.Contains(have, name) {
			return &cli.UsageError{Err: fmt.Errorf("the behaviour speaks of %q, which is in no pod", name), Hint: "containers here are " + strings.Join(have, ", ")}
		}
	}
	return nil
}

// around is the world around one pod, and what of it is assumed, as text.
func (w world) around(r running) (b simulate.Behaviour, assumed []string, err error) {
	var before []string
	for _, c := range r.Plan.Containers {
		for _, clause := range w.assume(r, c) {
			before = append(before, c.Name+": "+clause)
		}
	}
	b, err = simulate.Parse(strings.Join(before, "\n") + "\n" + w.text)
	if err != nil {
		return b, nil, err
	}
	for name := range b.Containers {
		if _, i := r.Plan.Find(name); i < 0 {
			delete(b.Containers, name)
		}
	}
	for _, line := range before {
		name, _, _ := strings.Cut(line, ":")
		if !strings.Contains(line, "healthy after") || b.Containers[name].Healthy == proxyTakes {
			assumed = append(assumed, line)
		}
	}
	return b, assumed, nil
}

// assume is what holds of a container of which nothing else is said, in clauses of
// a behaviour.
func (w world) assume(r running, c startup.Container) []string {
	said := w.said.Containers[c.Name]
	isProxy := r.run.Facts[c.Name].Proxy
	var out []string
	switch {
	case c.Kind == startup.Init && len(said.Ends) == 0:
		out = append(out, fmt.Sprintf("completes after %s", initTakes))
	case isProxy:
		out = append(out, fmt.Sprintf("healthy after %s", proxyTakes))
	case c.Kind == startup.Plain && len(said.Ends) == 0 && (r.life.Restart == kubelet.Never || r.life.Restart == kubelet.OnFailure):
		out = append(out, fmt.Sprintf("completes after %s", jobTakes))
	}
	// A sleep that keeps no edge is the start of the command, as far as anybody waits for it.
	keeps := slices.ContainsFunc(r.Plan.Edges, func(e startup.Edge) bool {
		return e.To == c.Name && (e.By == startup.Sleep || e.By == startup.BoundedLoop)
	})
	if d, ok := r.run.Sleeps[c.Name]; ok && keeps && said.Sleeps == 0 {
		out = append(out, fmt.Sprintf("sleeps %s", d))
	}
	if h, ok := r.run.Hooks[c.Name]; ok && said.PostStart == (simulate.Hook{}) {
		switch {
		case h.Asks == "":
			out = append(out, "post-start takes 0s")
		case h.Once:
			out = append(out, fmt.Sprintf("post-start asks %s for 0s", h.Asks))
		case h.GoesOn:
			out = append(out, fmt.Sprintf("post-start asks %s at most %s", h.Asks, h.Timeout))
		case h.Timeout > 0:
			out = append(out, fmt.Sprintf("post-start asks %s for %s", h.Asks, h.Timeout))
		case h.Asks != c.Name:
			out = append(out, fmt.Sprintf("post-start asks %s for 24h", h.Asks))
		}
	}
	return out
}
