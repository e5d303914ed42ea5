package podspec

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// Paths of the agent and of the states in a gated container. Each container can write only its own state.
const (
	AgentPath   = contract.AgentPath
	BinVolume   = contract.BinVolume
	StateVolume = contract.StateVolume
	BinDir      = contract.BinDir
)

// endFlags is the argument that ends the flags of a command line, as in getopt.
const endFlags = "--"

// A wrapper is a program that waits and then runs the real command.
type wrapper struct {
	program string
	by      string
	read    func(r *reader, c podContainer, argv []string) gateReading
}

// mechanism returns Gate only for our own wrapper. Other wrappers are weaker: they do not order the stop, and do
// not wrap the containers for which they wait.
func (w wrapper) mechanism() startup.Mechanism {
	if w.program == path.Base(AgentPath) {
		return startup.Gate
	}
	return startup.Wrapper
}

// A gateReading holds the information from the command line and the environment of a wrapper.
type gateReading struct {
	edges []startup.Edge
	real  int // index of the real command in argv; 0 if the wrapper cannot be removed
	ok    bool
}

var wrappers = []wrapper{
	{"outrider-agent", "outrider-agent gate", readOurs},
	{"entrypoint", "Tekton", readTekton},
	{"scuttle", "scuttle", readEnvoyWrapper("ENVOY_ADMIN_API")},
	{"envoy-preflight", "envoy-preflight", readEnvoyWrapper("ENVOY_ADMIN_API")},
	{"kubexit", "kubexit", readKubexit},
	{"linkerd-await", "linkerd-await", readLinkerdAwait},
}

// gate recognises a command that a wrapper runs.
func gate(r *reader, c podContainer) {
	argv := c.argv()
	start := shell.AfterInit(argv)
	if start >= len(argv) {
		return
	}
	for _, w := range wrappers {
		if path.Base(argv[start]) != w.program {
			continue
		}
		g := w.read(r, c, argv[start:])
		if !g.ok {
			continue
		}
		f := podstart.Found{Container: c.Name, Mechanism: w.mechanism(), By: w.by, Edges: g.edges,
			Evidence: podstart.Evidence{Field: c.argField(start), Text: strings.Join(argv[start:], " ")}}
		switch {
		case len(r.gates[c.Name]) > 0:
			f.By, f.Evidence.Field = w.by+", by the node", "metadata.annotations["+contract.NodeAnnotation+"]"
		case g.real > 0 && start+g.real < len(argv):
			f.Unwrap, f.Replaceable = start+g.real, true
		}
		for i := range f.Edges {
			f.Edges[i].By = f.Mechanism
		}
		r.add(f)
		return
	}
}

func readOurs(_ *reader, c podContainer, argv []string) gateReading {
	line, ok := contract.ParseGate(argv[1:])
	if !ok {
		return gateReading{}
	}
	g := gateReading{ok: true}
	if len(line.Command) > 0 {
		g.real = len(argv) - len(line.Command)
	}
	for _, text := range line.After {
		if e, err := startup.ParseEdge(c.Name + " after " + text); err == nil {
			g.edges = append(g.edges, e)
		}
	}
	return g
}

// afterText returns the statement of an edge without its first words "TO after", for example "proxy is healthy,
// within 20s".
func afterText(e startup.Edge) string {
	e.By = ""
	return strings.TrimPrefix(e.String(), e.To+" after ")
}

// readTekton reads the command line of Tekton's entrypoint. A step waits for the file that the previous step
// writes. The first step waits for a file that the controller provides when the sidecars are ready.
func readTekton(r *reader, c podContainer, argv []string) gateReading {
	file := option(argv, "wait_file")
	if file == "" && option(argv, "post_file") == "" {
		return gateReading{}
	}
	g := gateReading{ok: true}
	for _, other := range r.all {
		argv := other.argv()
		step := len(argv) > 0 && path.Base(argv[0]) == "entrypoint"
		switch {
		case other.Name == c.Name || other.kind != startup.Plain:
		case step && file != "" && option(argv, "post_file") == file:
			g.edges = append(g.edges, startup.Edge{From: other.Name, To: c.Name, After: startup.Completed})
		case !step && strings.HasPrefix(file, "/tekton/downward/"):
			g.edges = append(g.edges, r.after(other.Name, c.Name, startup.Gate))
		}
	}
	return g
}

// option returns the value of the flag -name or --name; empty if it is not set.
func option(argv []string, name string) string {
	for i, a := range argv {
		if a == endFlags {
			break
		}
		a = strings.TrimPrefix(strings.TrimPrefix(a, "-"), "-")
		if value, ok := strings.CutPrefix(a, name+"="); ok && argv[i] != a {
			return value
		}
		if a == name && argv[i] != a && i+1 < len(argv) {
			return argv[i+1]
		}
	}
	return ""
}

// readEnvoyWrapper returns a function that reads the command of a wrapper. Such a wrapper waits for Envoy only if
// the variable contains Envoy's address.
func readEnvoyWrapper(variable string) func(*reader, podContainer, []string) gateReading {
	return func(r *reader, c podContainer, _ []string) gateReading {
		if c.env(variable) == "" {
			return gateReading{}
		}
		e := r.after(r.firstOf([]string{"istio-proxy", OurProxy}), c.Name, startup.Gate)
		if d, err := time.ParseDuration(c.env("WAIT_FOR_ENVOY_TIMEOUT")); err == nil && d > 0 {
			e.Timeout, e.OnTimeout = d, startup.Continue
		}
		return gateReading{edges: []startup.Edge{e}, real: 1, ok: true}
	}
}

func readKubexit(r *reader, c podContainer, _ []string) gateReading {
	g := gateReading{real: 1, ok: c.env("KUBEXIT_NAME") != ""}
	timeout, err := time.ParseDuration(c.env("KUBEXIT_BIRTH_TIMEOUT"))
	if err != nil || timeout <= 0 {
		timeout = 30 * time.Second // the wrapper's default
	}
	for dep := range strings.SplitSeq(c.env("KUBEXIT_BIRTH_DEPS"), ",") {
		dep = strings.TrimSpace(dep)
		for _, other := range r.all {
			if dep != "" && (other.env("KUBEXIT_NAME") == dep || other.Name == dep) {
				e := r.after(other.Name, c.Name, startup.Gate)
				e.Timeout = timeout
				g.edges = append(g.edges, e)
				break
			}
		}
	}
	return g
}

func readLinkerdAwait(r *reader, c podContainer, argv []string) gateReading {
	if c.env("LINKERD_AWAIT_DISABLED") != "" || c.env("LINKERD_DISABLED") != "" {
		return gateReading{}
	}
	e := r.after(r.firstOf([]string{"linkerd-proxy"}), c.Name, startup.Gate)
	if w, _ := knownproxy.WaitOf(argv); w.Timeout > 0 {
		e.Timeout = w.Timeout
		if slices.Contains(argv, "--timeout-fatal=false") {
			e.OnTimeout = startup.Continue
		}
	}
	g := gateReading{edges: []startup.Edge{e}, ok: true}
	if i := slices.Index(argv, endFlags); i > 0 {
		g.real = i + 1
	}
	return g
}

// writeGates puts a gate before the command of three kinds of containers: those that wait by a gate, those for
// which others wait and which cannot report their state by themselves, and those that must report their end.
func (w *writer) writeGates(edges []startup.Edge) error {
	after, probed, err := w.gates(edges)
	if err != nil || len(after) == 0 && len(w.reports) == 0 {
		return err
	}
	helpers := helpersIn(w.out, edges, w.reports)
	for _, c := range podContainers(w.out) {
		_, publishes := probed[c.Name]
		if len(after[c.Name]) == 0 && !publishes && !slices.Contains(w.reports, c.Name) {
			continue
		}
		if err := w.wrap(c, after[c.Name], probed[c.Name], helpers.served(c.Name)); err != nil {
			return err
		}
	}
	// Our proxy reads the states to detect that its applications have ended, and publishes its own state.
	if proxy := w.find(OurProxy); proxy != nil {
		if err := w.shareStates(proxy); err != nil {
			return err
		}
	}
	return w.addGateVolumes()
}

// gates returns the edges by which each gate waits, and the containers that must publish their state for other
// gates. The value in probed is true if the state must include health.
func (w *writer) gates(edges []startup.Edge) (after map[string][]startup.Edge, probed map[string]bool, err error) {
	commands := map[string]bool{}
	for _, c := range podContainers(w.out) {
		commands[c.Name] = len(c.Command) > 0 || w.node
	}
	after, probed = map[string][]startup.Edge{}, map[string]bool{}
	for _, e := range edges {
		if e.By != startup.Gate {
			continue
		}
		after[e.To] = append(after[e.To], e)
		_, isProxy := knownproxy.Named(e.From)
		switch {
		case isProxy && e.After != startup.Completed:
		case !commands[e.From]:
			return nil, nil, w.fail(e, "the command of "+e.From+" is not in the pod, so nothing can publish its state")
		default:
			probed[e.From] = probed[e.From] || e.After == startup.Healthy
		}
	}
	return after, probed, nil
}

// wrap puts a gate before the command of c. It replaces an earlier gate.
func (w *writer) wrap(c podContainer, after []startup.Edge, probed bool, helps []string) error {
	unwrap(c.Container)
	switch {
	case len(c.Command) > 0 || w.node:
	case len(after) == 0:
		return fmt.Errorf("the command of %s is not in the pod, so nothing can report its end", c.Name)
	default:
		return w.fail(after[0], "the command of "+c.Name+" is not in the pod, so there is nothing to wrap")
	}
	line := contract.Gate{Name: c.Name, HelperOf: helps}
	for _, e := range after {
		line.After = append(line.After, afterText(e))
		if _, ok := knownproxy.Named(e.From); ok {
			if line.At == nil {
				line.At = map[string]string{}
			}
			line.At[e.From] = healthURL(w.out, w.find(e.From))
		}
	}
	if probe := ownProbe(numbered(c.Container)); probed && probe != nil {
		text, err := marshal(probe)
		if err != nil {
			return err
		}
		line.Probe = text
	}
	// A gate that waits for nothing starts the command at once, so it need not take over probes and hooks from
	// the kubelet.
	if len(after) == 0 && slices.Contains(w.reports, c.Name) {
		w.describePod(c.Container, &line)
	} else if err := w.takeOver(c, &line); err != nil {
		return err
	}
	return w.putGate(c.Container, line)
}

// putGate puts a gate with the given command line before the command of c; line.Command is still empty.
func (w *writer) putGate(c *corev1.Container, line contract.Gate) error {
	if w.node {
		return w.byNode(c, line.Args())
	}
	line.Command = argvOf(c)
	c.Command, c.Args = []string{AgentPath}, line.Args()
	return w.share(c)
}
