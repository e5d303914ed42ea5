package contract

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The subcommands of the agent that containers and probes of a pod run.
const (
	gateCommand    = "gate"
	startedCommand = "started"
	heldCommand    = "held"
	waitCommand    = "wait"
	preStopCommand = "pre-stop"
)

// GateSays is the prefix of each line that a gate writes to the log of its container.
const GateSays = "outrider-gate: "

// A Gate is the command line of "outrider-agent gate", which is inserted in a pod before a container's own
// command:
//
//	/outrider/bin/outrider-agent gate --name app \
//	  --after 'cache is healthy, within 20s or continue' \
//	  --at outrider-proxy=http://127.0.0.1:15021/healthz/ready \
//	  --probe '{"httpGet":{"path":"/ready","port":8080}}' \
//	  -- java -jar app.jar
//
// A field with its zero value omits the flag. Probes and hooks are JSON as in a pod, with numeric ports.
type Gate struct {
	Name        string
	States, Own string // directories of the states of all containers, and of the container's own state

	After []string          // what the gate awaits, each as a plan writes it: "proxy healthy"
	At    map[string]string // health URLs of containers that publish no state, by container

	Probe        string
	StartupProbe string
	PostStart    string
	Notify       string

	LivenessDelay time.Duration // initial delay of the liveness probe, counted from the command's start

	RestartPolicy string
	StopGrace     time.Duration // a negative value means 0s; zero omits the flag
	PreStop       bool
	HelperOf      []string
	StopSignal    string
	NotifySignal  string

	Command []string // the container's own command
}

// Flags returns a flag set that parses into g.
func (g *Gate) Flags() *flag.FlagSet {
	fs := newFlags(gateCommand)
	placeFlags(fs, &g.Name, &g.States)
	fs.StringVar(&g.Own, "own", "", "where this container's state is (default "+OwnDir+")")
	fs.Func("after", "what to wait for, as in \"cache is healthy, within 20s or continue\"; may be repeated", func(edge string) error {
		g.After = append(g.After, edge)
		return nil
	})
	fs.Func("at", "`NAME=URL`: where a container that publishes no state is probed; may be repeated", func(text string) error {
		name, url, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return fmt.Errorf("--at %q: want NAME=URL", text)
		}
		if g.At == nil {
			g.At = map[string]string{}
		}
		g.At[name] = url
		return nil
	})
	fs.StringVar(&g.Probe, "probe", "", "JSON of a pod's `probe`: succeeds when the command is healthy")
	fs.StringVar(&g.StartupProbe, "startup-probe", "", "JSON of a pod's startup `probe`: until it succeeds, \"started\" fails and \"held\" succeeds")
	fs.DurationVar(&g.LivenessDelay, "liveness-delay", 0, "time after the start of the command in which \"held\" succeeds")
	fs.StringVar(&g.PostStart, "post-start", "", "JSON of a pod's postStart `hook`, which runs concurrently with the command")
	fs.StringVar(&g.Notify, "notify", "", "`how` the command says that it is ready: socket (sd_notify), fd or fd=N (a newline)")
	fs.StringVar(&g.RestartPolicy, "restart-policy", "", "the pod's: Always, OnFailure, Never")
	stopGraceFlag(fs, &g.StopGrace)
	fs.BoolVar(&g.PreStop, "pre-stop", false, "the container has a preStop hook, so its SIGTERM comes late: the grace period counts from the first SIGTERM in the pod")
	fs.Func("helper-of", "end with status 0 when all of these `containers` have ended for good", func(names string) error {
		g.HelperOf = append(g.HelperOf, strings.Split(names, ",")...)
		return nil
	})
	fs.StringVar(&g.StopSignal, "stop-signal", "", "the image's stop `signal`, in addition to the usual ones")
	fs.StringVar(&g.NotifySignal, "notify-signal", "", "the `signal` that notifies the command when a dependency is back; default: only the file \"back\" is written")
	return fs
}

// Args returns the agent's arguments. [ParseGate] parses them.
func (g Gate) Args() []string {
	a := args{gateCommand}
	a.place(g.Name, g.States)
	a.given("own", g.Own)
	for _, edge := range g.After {
		a.add("after", edge)
	}
	for _, name := range slices.Sorted(maps.Keys(g.At)) {
		a.add("at", name+"="+g.At[name])
	}
	a.given("probe", g.Probe)
	a.given("startup-probe", g.StartupProbe)
	if g.LivenessDelay != 0 {
		a.add("liveness-delay", g.LivenessDelay.String())
	}
	a.given("post-start", g.PostStart)
	a.given("notify", g.Notify)
	a.given("restart-policy", g.RestartPolicy)
	a.stopGrace(g.StopGrace)
	if g.PreStop {
		a = append(a, "--pre-stop")
	}
	a.given("helper-of", strings.Join(g.HelperOf, ","))
	a.given("stop-signal", g.StopSignal)
	a.given("notify-signal", g.NotifySignal)
	return append(append(a, "--"), g.Command...)
}

// ParseGate parses the agent's arguments. It returns false if they are not for a gate, or if the agent
// would refuse them.
func ParseGate(arguments []string) (Gate, bool) {
	p := gateParsers.Get().(*gateParser)
	defer gateParsers.Put(p)
	p.gate = Gate{}
	command, ok := parse(gateCommand, p.flags, arguments)
	g := p.gate
	g.Command = command
	return g, ok
}

// A gateParser is a flag set that is used again, because creating one takes longer than parsing a line, and the
// gates of a pod are parsed several times.
type gateParser struct {
	gate  Gate
	flags *flag.FlagSet
}

var gateParsers = sync.Pool{New: func() any {
	p := &gateParser{}
	p.flags = p.gate.Flags()
	return p
}}

// IsGate reports whether the agent's arguments run a gate, regardless of its flags.
func IsGate(arguments []string) bool { return len(arguments) > 0 && arguments[0] == gateCommand }

// Started is the command line of "outrider-agent started", the startup probe of a container with a gate. It
// succeeds once the command behind the gate has started up; until then the kubelet runs no other probe of
// the container.
type Started struct{ Name, States string }

// Flags returns a flag set that parses into s.
func (s *Started) Flags() *flag.FlagSet {
	fs := newFlags(startedCommand)
	placeFlags(fs, &s.Name, &s.States)
	return fs
}

// Args returns the agent's arguments. [ParseStarted] parses them.
func (s Started) Args() []string {
	a := args{startedCommand}
	a.place(s.Name, s.States)
	return a
}

// ParseStarted parses the agent's arguments, as [ParseGate] does.
func ParseStarted(arguments []string) (Started, bool) {
	var s Started
	rest, ok := parse(startedCommand, s.Flags(), arguments)
	return s, ok && len(rest) == 0
}

// Held is the command line of "outrider-agent held", the liveness probe of a container that has a gate but
// cannot use a startup probe: a sidecar, or a container whose initial delay counts from the command's start. It
// succeeds while the gate holds the command; afterwards it runs the container's own probe or command.
type Held struct {
	Name, States string
	Probe        string // JSON
	Command      []string
}

// Flags returns a flag set that parses into h.
func (h *Held) Flags() *flag.FlagSet {
	fs := newFlags(heldCommand)
	placeFlags(fs, &h.Name, &h.States)
	fs.StringVar(&h.Probe, "probe", "", "JSON of a pod's `probe`")
	return fs
}

// Args returns the agent's arguments. [ParseHeld] parses them.
func (h Held) Args() []string {
	a := args{heldCommand}
	a.place(h.Name, h.States)
	a.given("probe", h.Probe)
	if len(h.Command) > 0 {
		a = append(append(a, "--"), h.Command...)
	}
	return a
}

// ParseHeld parses the agent's arguments, as [ParseGate] does.
func ParseHeld(arguments []string) (Held, bool) {
	var h Held
	command, ok := parse(heldCommand, h.Flags(), arguments)
	h.Command = command
	return h, ok
}

// WaitArgs returns arguments with which the agent waits until a probe, given in JSON, succeeds.
func WaitArgs(probe string) []string { return []string{waitCommand, "--probe", probe} }

func newFlags(command string) *flag.FlagSet {
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

func placeFlags(fs *flag.FlagSet, name, states *string) {
	fs.StringVar(name, "name", "", "of this container")
	fs.StringVar(states, "states", "", "where the states of all containers are (default "+StatesDir+")")
}

func stopGraceFlag(fs *flag.FlagSet, to *time.Duration) {
	fs.Func("stop-grace", "the pod's grace period; 0 forwards the signal at once (default 30s)", func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("--stop-grace: %w", err)
		}
		if *to = d; d <= 0 {
			*to = -1
		}
		return nil
	})
}

func parse(command string, fs *flag.FlagSet, arguments []string) (rest []string, ok bool) {
	if len(arguments) == 0 || arguments[0] != command || fs.Parse(arguments[1:]) != nil {
		return nil, false
	}
	return fs.Args(), true
}

// args collects arguments in the order of the calls.
type args []string

func (a *args) add(name, value string) { *a = append(*a, "--"+name, value) }

func (a *args) given(name, value string) {
	if value != "" {
		a.add(name, value)
	}
}

// stopGrace adds a grace period; a negative one is 0s, and zero stands for the default.
func (a *args) stopGrace(d time.Duration) {
	switch {
	case d < 0:
		a.add("stop-grace", "0s")
	case d > 0 && d%time.Second == 0:
		a.add("stop-grace", strconv.FormatInt(int64(d/time.Second), 10)+"s")
	case d > 0:
		a.add("stop-grace", d.String())
	}
}

func (a *args) place(name, states string) {
	a.given("name", name)
	a.given("states", states)
}
