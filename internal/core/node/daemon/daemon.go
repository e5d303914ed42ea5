// Package daemon does the work of outrider-node on a node. One process leads: it adjusts containers,
// answers the CNI plugin, and maintains the network configuration, the label and the taint. Each other
// process is a standby: it refuses containers that were not adjusted, and takes the lead when the
// leading process has ended, for whatever reason.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/oklog/run"

	"outrider.dev/internal/base/atomicfile"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/node/captures"
	"outrider.dev/internal/core/node/cni"
	"outrider.dev/internal/core/node/cniconf"
	"outrider.dev/internal/core/node/hostfile"
	"outrider.dev/internal/core/node/kubenode"
	"outrider.dev/internal/core/node/nri"
	"outrider.dev/internal/core/node/socket"
	"outrider.dev/internal/core/node/states"
	"outrider.dev/internal/core/node/validator"
)

// Options contains locations on the node. Each path is the same in the daemon's container.
type Options struct {
	Program, Agent                 string // in this image
	CNIConf, CNIBin                string // directories
	NRISocket, NRIPlugins          string // NRIPlugins: folder of plugins to launch; empty: no guard is installed
	RuntimeConfig                  string // containerd's configuration; empty: it is not read
	AgentsDir, StatesDir, RunDir   string
	ReadyFile                      string // file with the reason why the process does not do its part
	DaemonSetNamespace, DaemonSet  string // if this DaemonSet is deleted, the node is restored; empty: never
	Taint                          bool
	Metrics                        string           // HOST:PORT for Prometheus; empty: none
	Handlers                       []string         // handlers of the runtime that run containers on the node's kernel, in addition to the known ones
	Kube                           *kubenode.Client // nil: the Node is not written
	Log                            *slog.Logger
	settle, handover, leaveTimeout time.Duration
}

// Intervals and limits.
const (
	// settle is the time for which the plugins may be disconnected before the Node says so: a runtime that
	// restarts is usually back earlier, and pods wait meanwhile.
	settle = 2 * time.Second
	// handover is the time that another process may need to take the lead when this one ends.
	handover = 2 * time.Second
	// leaveTimeout limits the time for restoring the node at the end.
	leaveTimeout = 20 * time.Second
	retryMax     = 30 * time.Second // pause between requests to the API server
	// reconcile is roughly the interval at which the Node is read: it may have been created again, without the
	// label.
	reconcile = 5 * time.Minute
	// heartbeat is the interval at which a process reports that it is alive, and hangs is the maximum age of such
	// a report.
	heartbeat = 5 * time.Second
	hangs     = 30 * time.Second
)

// GuardFile is the guard's file name among the plugins that a runtime launches. The number is its
// position.
const GuardFile = "95-" + contract.NodeGuard

func (o *Options) complete() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.settle, settle}, {&o.handover, handover}, {&o.leaveTimeout, leaveTimeout}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

// A daemon is a process of outrider-node.
type daemon struct {
	Options
	conf     cniconf.Dir
	agents   hostfile.Agents
	agentDir string
	states   *states.Dir
	captures *captures.Captures

	mu      sync.Mutex
	state   state
	changed chan struct{} // contains a value while the state differs from the reported one
}

// state records whether this process leads, and which of its parts work.
type state struct {
	guards, leads, connected bool
	conf                     error
}

func (s state) serves() bool { return s.leads && s.connected && s.conf == nil }

// unready returns the reason why a process does not do its part; empty if it does.
func (s state) unready() string {
	switch {
	case !s.guards || s.leads && !s.connected:
		return "not connected to the container runtime by NRI"
	case s.leads && s.conf != nil:
		return "the network configuration: " + s.conf.Error()
	}
	return ""
}

var errNotYet = errors.New("the network configuration was not read yet")

// Serve runs the daemon until ctx ends.
func Serve(ctx context.Context, o Options) error {
	o.complete()
	d := &daemon{Options: o, changed: make(chan struct{}, 1), state: state{conf: errNotYet}, captures: captures.New(o.Agent, filepath.Join(o.RunDir, "dns")), agents: hostfile.Agents{Root: o.AgentsDir},
		conf: cniconf.Dir{Path: o.CNIConf, Plugin: cni.Program, Entry: cni.Entry, Log: o.Log}}
	if err := d.prepare(); err != nil {
		return err
	}
	defer os.Remove(o.ReadyFile)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g run.Group
	add := func(f func(context.Context) error) {
		g.Add(func() error { return f(ctx) }, func(error) { cancel() })
	}
	add(func(ctx context.Context) error {
		p := d.plugin()
		p.Leads = false
		return p.Run(ctx, contract.NodeGuard, o.NRISocket, nil, func(is bool) { d.set(func(s *state) { s.guards = is }) })
	})
	add(d.report)
	add(d.lead)
	return g.Run()
}

// prepare creates the files that both leading and standby processes need.
func (d *daemon) prepare() error {
	if err := os.MkdirAll(d.RunDir, 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.ReadyFile), 0o755); err != nil {
		return err
	}
	if err := d.captures.Ready(); err != nil {
		return err
	}
	if err := d.captures.Confine("/proc/self/cgroup", "/sys/fs/cgroup"); err != nil {
		d.Log.Warn("captures have no cgroup of their own: the memory that they take is this container's", "error", err)
	}
	var err error
	if d.states, err = states.New(d.StatesDir); err != nil {
		return err
	}
	d.agentDir, err = d.agents.Install(d.Agent)
	return err
}

func (d *daemon) plugin() *nri.Plugin {
	return &nri.Plugin{Leads: true, AgentDir: d.agentDir, States: d.states, Captures: d.captures, Agents: d.agents, Handlers: d.Handlers, Log: d.Log,
		AgentsRoot: d.AgentsDir, StatesRoot: d.StatesDir}
}

// lead waits until no other process leads, and then does the node's work until ctx ends.
func (d *daemon) lead(ctx context.Context) error {
	lock, err := acquire(ctx, filepath.Join(d.RunDir, "lock"))
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	// The previous leading process may have removed the agent, if no container had mounted it.
	if _, err := d.agents.Install(d.Agent); err != nil {
		return err
	}
	if err := d.install(); err != nil {
		return err
	}
	d.Log.Info("leading", "agent", d.agentDir)
	d.set(func(s *state) { s.leads = true })
	// The process keeps serving while it asks the API server why it is being stopped.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	leaving := false
	var g run.Group
	add := func(f func(context.Context) error) {
		g.Add(func() error { return f(working) }, func(error) { stop() })
	}
	add(func(ctx context.Context) error {
		return d.plugin().Run(ctx, contract.NodePlugin, d.NRISocket, nil, func(is bool) { d.set(func(s *state) { s.connected = is }) })
	})
	add(func(ctx context.Context) error { return d.captures.Serve(ctx, d.Log) })
	if d.Metrics != "" {
		add(d.serveMetrics)
	}
	add(func(ctx context.Context) error {
		return socket.Serve(ctx, filepath.Join(d.RunDir, filepath.Base(contract.NodeSocket)), d.answer)
	})
	add(func(ctx context.Context) error {
		return d.conf.Keep(ctx, func(err error) { d.set(func(s *state) { s.conf = err }) })
	})
	add(func(working context.Context) error {
		select {
		case <-working.Done():
		case <-ctx.Done():
			leaving = d.leaves(working)
		}
		return nil
	})
	if err := g.Run(); err != nil {
		return err
	}
	return d.end(context.WithoutCancel(ctx), leaving, lock)
}

// leaves reports whether the process ends because its DaemonSet is deleted.
func (d *daemon) leaves(ctx context.Context) bool {
	if d.Kube == nil || d.DaemonSet == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d.leaveTimeout/2)
	defer cancel()
	is, err := d.Kube.Leaving(ctx, d.DaemonSetNamespace, d.DaemonSet)
	if err != nil {
		d.Log.Warn("not known whether the DaemonSet is deleted: all stays", "error", err)
	}
	return is
}

// install copies the programs that other processes run to the node, before the configuration names them.
func (d *daemon) install() error {
	if err := hostfile.Copy(d.Program, filepath.Join(d.CNIBin, cni.Program)); err != nil {
		return err
	}
	if d.NRIPlugins == "" {
		return nil
	}
	if err := os.MkdirAll(d.NRIPlugins, 0o755); err != nil {
		return err
	}
	return hostfile.Copy(d.Program, filepath.Join(d.NRIPlugins, GuardFile))
}

// answer handles a question of the CNI plugin.
func (d *daemon) answer(ctx context.Context, q socket.Question) error {
	if q.Namespace == "" {
		d.captures.Forget(q.Sandbox)
		return nil
	}
	if !d.now().connected {
		return errors.New("the container runtime has not registered the plugin (NRI), which brings the gate; the pod waits for it")
	}
	work, err := contract.ParseNodeWork(q.Work)
	if err != nil || len(work.Capture) == 0 {
		return err
	}
	if err := d.captures.Servers(q.Sandbox, q.Nameservers); err != nil {
		return err
	}
	began := time.Now()
	if err := d.captures.Ensure(ctx, q.Sandbox, q.Pod, q.Namespace, work.Capture); err != nil {
		d.captures.Forget(q.Sandbox)
		d.Log.Warn("sandbox refused", "pod", q.Pod, "sandbox", q.Sandbox, "error", err)
		return err
	}
	d.Log.Info("sandbox captured", "pod", q.Pod, "sandbox", q.Sandbox, "after", time.Since(began))
	return nil
}

func (d *daemon) now() state {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

func (d *daemon) set(change func(*state)) {
	d.mu.Lock()
	change(&d.state)
	d.mu.Unlock()
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// told records what the daemon has written to the Node.
type told struct {
	serves    bool
	validator string
}

// validated returns the state of the runtime's validator.
func (d *daemon) validated() string {
	if d.RuntimeConfig == "" {
		return contract.ValidatorUnknown
	}
	state, err := validator.State(d.RuntimeConfig, d.NRISocket)
	if err != nil {
		d.Log.Warn("not known whether the runtime's validator is on", "error", err)
	}
	return state
}

// report writes the readiness file, and writes to the Node whether the plugins serve.
func (d *daemon) report(ctx context.Context) error {
	var reported *told
	since := time.Now() // beginning of the time in which the plugins do not serve
	pause := time.Second
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	var again <-chan time.Time
	for {
		s := d.now()
		if s.serves() {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		unsettled := d.settle - time.Since(since)
		is := told{serves: s.serves()}
		if is.serves && d.Kube != nil {
			is.validator = d.validated()
		}
		switch same := reported != nil && *reported == is; {
		case d.Kube == nil || !s.leads || same && again != nil:
		case !same && !s.serves() && unsettled > 0:
			again = time.After(unsettled)
		default:
			err := d.tell(ctx, s, is.validator, same)
			if err == nil {
				reported, pause = &is, time.Second
				again = time.After(reconcile/2 + rand.N(reconcile))
				break
			}
			if ctx.Err() == nil {
				d.Log.Warn("the Node does not say whether this node serves", "error", err, "again", pause)
			}
			again, pause = time.After(pause), min(2*pause, retryMax)
		}
		for beats := true; beats; {
			if err := d.writeReady(); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-alive.C:
				continue
			case <-d.changed:
			case <-again:
				again = nil
			}
			beats = false
		}
	}
}

// writeReady writes the readiness file. An empty file means that this process does its part.
func (d *daemon) writeReady() error {
	return atomicfile.Write(d.ReadyFile, []byte(d.now().unready()), 0o644)
}

func (d *daemon) tell(ctx context.Context, s state, validator string, known bool) error {
	if s.serves() {
		if !known {
			d.Log.Info("serving", "node", d.Kube.Node, "validator", validator)
		}
		return d.Kube.Serves(ctx, validator)
	}
	if !known {
		d.Log.Warn("not serving", "node", d.Kube.Node, "reason", s.unready())
	}
	return d.Kube.ServesNot(ctx, d.Taint)
}

// Ready returns an error that says why a process does not do its part. If lifeAlone is set, only a process that
// does not run, or hangs, is an error.
func Ready(file string, lifeAlone bool) error {
	info, err := os.Stat(file)
	if err != nil {
		return errors.New("outrider-node has not started yet")
	}
	if age := time.Since(info.ModTime()); age > hangs {
		return fmt.Errorf("outrider-node hangs since %s", age.Round(time.Second))
	}
	reason, err := os.ReadFile(file)
	if err == nil && len(reason) > 0 && !lifeAlone {
		err = errors.New(string(reason))
	}
	return err
}

// end passes the work to another process, or restores the node.
func (d *daemon) end(ctx context.Context, leaving bool, lock *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, d.leaveTimeout)
	defer cancel()
	if leaving {
		return errors.Join(Remove(ctx, d.Options), d.Kube.Left(ctx))
	}
	if err := lock.Close(); err != nil {
		return err
	}
	if d.Kube == nil || taken(ctx, filepath.Join(d.RunDir, "lock"), d.handover) {
		return nil
	}
	d.Log.Info("no other process leads: pods that need this node wait")
	return d.Kube.ServesNot(ctx, d.Taint)
}

// Remove restores the node: it removes the network configuration, the programs, and files that no
// running pod uses.
func Remove(ctx context.Context, o Options) error {
	o.complete()
	conf := cniconf.Dir{Path: o.CNIConf, Plugin: cni.Program, Log: o.Log}
	if err := conf.Remove(); err != nil {
		return fmt.Errorf("%w; the programs stay, because the configuration names them", err)
	}
	errs := []error{hostfile.Remove(filepath.Join(o.CNIBin, cni.Program))}
	if o.NRIPlugins != "" {
		errs = append(errs, hostfile.Remove(filepath.Join(o.NRIPlugins, GuardFile)))
	}
	errs = append(errs, o.removeUnused(ctx), os.RemoveAll(o.RunDir))
	for _, dir := range []string{o.AgentsDir, o.StatesDir, filepath.Dir(o.StatesDir), o.NRIPlugins} {
		_ = os.Remove(dir) // the removal succeeds only if the directory is empty and not a mount of the container
	}
	return errors.Join(errs...)
}

// removeUnused removes agents and states that no container has mounted, according to the runtime.
func (o Options) removeUnused(ctx context.Context) error {
	dir, err := states.New(o.StatesDir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.leaveTimeout/2)
	defer cancel()
	p := &nri.Plugin{Leads: true, States: dir, Captures: captures.New("", filepath.Join(o.RunDir, "dns")), Agents: hostfile.Agents{Root: o.AgentsDir}, Log: o.Log,
		AgentsRoot: o.AgentsDir, StatesRoot: o.StatesDir}
	listed := false
	err = p.Run(ctx, contract.NodePlugin+"-leaving", o.NRISocket, nil, func(is bool) {
		listed = listed || is
		cancel()
	})
	if err == nil && !listed {
		o.Log.Warn("the container runtime does not say what its containers use: copies of the agent and states stay", "agents", o.AgentsDir, "states", o.StatesDir)
	}
	return err
}
