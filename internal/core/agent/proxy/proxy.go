// Package proxy is the agent that runs as PID 1 of the proxy's container. It starts and stops
// the parts of the agent, which are in the packages beside it, in the order of a pod's start
// and stop.
//
//  1. The whole configuration is checked (Envoy's too) before a port is bound.
//  2. The status ports open: requests are answered, or held, from now on.
//  3. The standby listens where Envoy will; Envoy starts; the certificate is requested.
//  4. Envoy listens and has its configuration: waiters are released, the standby hands over.
//  5. SIGTERM: inbound drains, outbound serves until the applications have ended (stop.go). If
//     only this container is replaced, both drain, and the kernel parks new connections: it drops
//     their first packets until the next proxy listens (replace.go).
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/dns"
	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/relay"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/internal/core/agent/supervise"
)

// Options of an agent.
type Options struct {
	Config             config.Config
	Inputs             config.Inputs  // the sources of Config, to read Config again; default: Config does not change
	Log                *slog.Logger   // required
	Level              *slog.LevelVar // level of Log; default: the level does not change
	TerminationMessage string         // the kubelet's file; empty: none
	Stdout             io.Writer      // gets Envoy's access log; default: Log
}

// An agent is one run of the proxy's container.
type agent struct {
	config  config.Config
	log     *slog.Logger
	journal *status.Journal
	board   *readiness.Board
	held    sync.Map // set of the readiness.Conditions that have held at least once

	bootstrap string // path of Envoy's bootstrap
	envoy     envoy.Options
	admin     *envoy.Admin
	proxy     *readiness.Proxy
	keeper    *identity.Keeper       // nil: Envoy speaks without TLS
	secrets   *identity.SecretServer // serves the keeper's secrets to Envoy; nil until it listens
	relay     *relay.Relay           // between Envoy and the control plane
	status    *status.Server
	standbys  *standbys
	capture   *readiness.Capture // nil: nothing is captured, or it cannot be proved
	apps      *apps              // nil: nothing reports when the applications have ended
	health    *health
	super     *supervise.Supervisor
	accessLog *supervise.Queue // nil: Envoy's standard output is in the agent's log
	ends      ends             // of the Envoy processes
	renewal   renewal
	leaving   leaving                    // progress of the stop
	names     atomic.Pointer[dns.Server] // nil: there is no DNS server (yet)
	quit      context.CancelFunc

	current current
}

// A ConfigError reports a configuration that cannot work; nothing was bound or started.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

func (e *ConfigError) Unwrap() error { return e.Err }

// Run runs the agent until it ends. When the context stop ends, Run drains and then returns, as on
// SIGTERM; when the context quit ends, it returns at once. It returns the exit status, which is 0
// only after a requested stop, and the reason of any other status. If the options are wrong, the
// error is a [*ConfigError].
func Run(stop, quit context.Context, o Options) (int, error) {
	a, err := prepare(o)
	if err != nil {
		return 2, &ConfigError{err}
	}
	quit, a.quit = context.WithCancel(quit)
	defer a.quit()
	// The status ports close last, so that the kubelet's probes succeed until the pod is gone.
	ctx, end := context.WithCancel(context.WithoutCancel(stop))
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer end()

	if err := a.listen(); err != nil {
		var wrong *ConfigError
		if errors.As(err, &wrong) {
			return 2, err
		}
		return 1, err
	}
	tasks.Go(func() { a.problem("answering on the status ports", a.status.Serve(ctx)) })
	if err := a.write(); err != nil {
		return 1, err
	}
	if a.relay, err = a.listenRelay(); err != nil {
		return 1, err
	}
	if err := a.keepSecrets(ctx, &tasks); err != nil {
		return 1, err
	}
	tasks.Go(func() { a.problem("relaying to the control plane", a.relay.Serve(ctx)) })
	tasks.Go(func() { a.problem("collecting orphans", supervise.Reap(ctx)) })
	// Envoy reopens its log files on SIGUSR1 and ignores SIGHUP. Neither ends the agent.
	tasks.Go(func() { a.super.Forward(ctx, syscall.SIGUSR1, syscall.SIGHUP) })
	if a.config.DNS {
		tasks.Go(func() { a.answerNames(ctx) })
	}
	tasks.Go(func() { a.publish(ctx) })
	if a.config.Stop.Ordered {
		tasks.Go(func() { a.refuseEarly(ctx) })
	}
	tasks.Go(func() { a.announce(ctx) })
	if o.Inputs.ReadFile != nil {
		tasks.Go(func() { a.follow(ctx, o.Inputs) })
	}
	if err := a.standbys.listen(ctx, a.copies(ctx)); err != nil {
		return 1, err
	}

	stop, leave := context.WithCancel(stop)
	defer leave()
	if a.apps = a.newApps(); a.apps != nil {
		tasks.Go(func() { a.apps.follow(ctx) })
		tasks.Go(func() {
			// This proxy is no longer needed. It ends so that a Job can complete.
			if a.apps.await(ctx, state.Seen.EndedForGood) {
				a.journal.Note("stop", "the applications have ended, and none will be started again")
				leave()
			}
		})
	}

	result := a.super.Run(stop, quit)
	if a.accessLog != nil {
		a.accessLog.Flush(time.Second)
	}
	if result.Status != 0 {
		return result.Status, errors.New(result.Reason)
	}
	a.problem("writing the termination message", a.leaving.write(o.TerminationMessage))
	return 0, nil
}

// prepare checks the configuration and makes the parts of the agent. It binds no port.
func prepare(o Options) (*agent, error) {
	c := o.Config
	a := &agent{config: c, current: current{config: c, level: o.Level}, log: o.Log, leaving: leaving{begun: make(chan struct{})}, bootstrap: filepath.Join(c.Work, "envoy.json"), envoy: envoyOptions(c)}
	for _, note := range c.Notes {
		a.log.Warn(note)
	}
	if path := socket(c); len(path) > identity.MaxSocketPath {
		return nil, fmt.Errorf("--work-dir %q: it is too long for a socket in it; use at most %d bytes", c.Work, identity.MaxSocketPath-len(path)+len(c.Work))
	}
	if err := a.envoy.Check(); err != nil {
		return nil, named(err)
	}
	if err := os.MkdirAll(c.Work, 0o700); err != nil {
		return nil, fmt.Errorf("--work-dir: %w; name a directory that can be written to", err)
	}
	var err error
	if a.keeper, err = a.newKeeper(); err != nil {
		return nil, named(err)
	}
	process, err := supervise.StartTime("self")
	if err != nil {
		process = time.Now()
	}
	container, _ := supervise.StartTime("1") // zero if /proc hides process 1
	a.journal = status.NewJournal(status.JournalOptions{Process: process, Container: container})
	a.board = readiness.New(readiness.Options{Conditions: a.conditions(), Changed: a.changed})
	a.admin = envoy.NewAdmin(a.envoy, 0)
	a.capture = a.newCapture()
	a.standbys = newStandbys(c, a.log, a.captured, a.capture.Arrived)
	a.proxy = readiness.NewProxy(readiness.ProxyOptions{
		Board: a.board, Admin: a.admin, ControlPlane: c.ControlPlane.Address, Ports: capturePorts(c), Answered: a.answered, Stream: a.stream,
		Progress: func() (time.Duration, bool) { return supervise.Progress(a.super.PID()) },
	})
	command := supervise.Command{Path: c.Envoy.Path, Args: a.envoy.Args(a.bootstrap), Line: a.line, Env: []string{resource(c)}}
	if o.Stdout != nil {
		a.accessLog = supervise.NewQueue(o.Stdout)
		command.Stdout = a.accessLog
	}
	a.super = supervise.New(supervise.Options{
		Command:            command,
		Renew:              a.next,
		Grace:              c.Stop.Grace - margin(c.Stop.Grace),
		Ready:              a.ready,
		Standby:            a.standbys,
		Drain:              a.drainInbound,
		AwaitDrained:       a.awaitDrained,
		Explain:            explain,
		Journal:            a.entry,
		TerminationMessage: o.TerminationMessage,
	})
	return a, nil
}

// margin returns the part of the grace period that is reserved for ending Envoy, before the
// kubelet kills the container.
func margin(grace time.Duration) time.Duration {
	return min(grace/10, 2*time.Second)
}

// conditions returns the readiness conditions that count in this pod.
func (a *agent) conditions() []readiness.Condition {
	out := []readiness.Condition{readiness.ControlPlane, readiness.Envoy, readiness.Configuration, readiness.App}
	if a.keeper != nil {
		out = append(out, readiness.Certificate, readiness.Identity)
	}
	if interception(a.config) != none {
		out = append(out, readiness.Listeners, readiness.CaptureRules)
	}
	if a.config.DNS {
		out = append(out, readiness.Names)
	}
	return out
}

// waiterSocket is the socket on which the pod's containers may wait for readiness. It is in the
// proxy's own directory.
const waiterSocket = "agent.sock"

// listen opens the status ports and the socket for waiters.
func (a *agent) listen() (err error) {
	c := a.config
	probes, err := status.ParseProbes(string(c.AppProbes), address(c), c.Ports.Status, c.Ports.Readiness)
	if err != nil {
		return &ConfigError{fmt.Errorf("variable ISTIO_KUBE_APP_PROBERS: %w", err)}
	}
	probes.Key = c.Callers.Key
	targets, err := status.ParseTargets(string(c.AppMetrics), c.Ports.Status, c.Ports.Readiness)
	if err != nil {
		return &ConfigError{fmt.Errorf("variable ISTIO_PROMETHEUS_ANNOTATIONS: %w", err)}
	}
	own, waiters := c.Own, filepath.Join(c.Own, waiterSocket)
	switch {
	case !directory(own):
		own, waiters = "", ""
	case len(waiters) > identity.MaxSocketPath:
		return &ConfigError{fmt.Errorf("variable OUTRIDER_OWN=%q: it is too long for a socket in it; use at most %d bytes", own, identity.MaxSocketPath-len(waiterSocket)-1)}
	}
	a.health = newHealth(a.board, c.Stop.Apps, probes)
	a.status, err = status.Listen(status.Options{
		Board: a.board, Journal: a.journal, Log: a.log, Probes: a.health.probes, Full: a.health.inquiry, App: targets,
		Ports: []uint16{c.Ports.Status, c.Ports.Readiness},
		Node:  nodeOf(c.Callers), MetricsFrom: c.Callers.Metrics,
		StateDir: own, Socket: waiters,
		Drain:   a.discourage,
		Replace: a.leaving.announceReplacement,
		Quit:    func() { a.quit() },
		Envoy:   fmt.Sprintf("http://localhost:%d/stats/prometheus", c.Ports.Prometheus),
		Metrics: a.metrics(), Workload: workloadOf(c),
	})
	return err
}

// nodeOf returns the networks from which requests count as the node's: the configured ones, the
// pod's gateways and the node's addresses.
func nodeOf(c config.Callers) []netip.Prefix {
	out := slices.Concat(c.Probe, status.Gateways())
	for _, a := range c.Node {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

func address(c config.Config) string {
	if len(c.Pod.Addresses) == 0 {
		return ""
	}
	return c.Pod.Addresses[0].String()
}

func directory(name string) bool {
	info, err := os.Stat(name)
	return name != "" && err == nil && info.IsDir()
}

// write writes Envoy's bootstrap.
func (a *agent) write() error {
	text, err := a.envoy.Bootstrap()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.config.Work, 0o700); err != nil {
		return err
	}
	return os.WriteFile(a.bootstrap, text, 0o600)
}

func (a *agent) problem(doing string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		a.log.Error(doing, "error", err)
		a.journal.Fail(doing, err.Error())
	}
}
