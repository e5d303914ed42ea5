package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/gate"
	"outrider.dev/ready"
)

// waitOptions holds the flags of wait; the first four are pilot-agent's.
type waitOptions struct {
	timeoutSeconds, requestMillis, periodMillis int

	url       string
	level     string
	as        string
	stateDir  string
	probe     string
	on        []string // conditions to wait for instead of the proxy; proxyWord means the proxy
	onTimeout string
}

// proxyWord is the value of --for that means the proxy.
const proxyWord = "proxy"

func newWait() *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "wait until the proxy is ready, or print why it is not",
		Long: `Sends a request to the agent, which holds it and answers as soon as the proxy is ready, without
polling. If no agent runs yet, the request is sent again when one writes its state file, or
a little later.

With --level=full it waits for the applications too: each container must be healthy by
its gate, or by its readiness (else startup) probe, which the agent then makes. The wait
fails, with the reason, if a container has neither.

With --probe it waits until a probe of this container succeeds, without a limit unless
--timeoutSeconds is given. Injection writes such a command into the postStart hook of a
container that others wait for.

With --for it waits for all of these at the same time: tcp://HOST:PORT,
http://HOST:PORT/PATH, grpc://HOST:PORT/SERVICE, unix:///PATH, file:///PATH, a container of
this pod with a gate ("cache", "cache is started", "migrate is completed"), or proxy.
--for=proxy without --url waits for the proxy of any mesh, and does not wait if the pod has none
(docs/ready.md).

The endpoint of another mesh, which does not hold requests, is polled every
--periodMillis, but at least every 50 ms.`,
		Example: `  # what Istio's injector writes into a hook
  pilot-agent wait

  # until the applications are healthy too, by the agent's socket: in the proxy's container
  outrider-agent wait --level=full --url=unix:///outrider/own/agent.sock

  # the same in a container that has a gate
  outrider-agent wait --level=full --url=unix:///outrider/state/outrider-proxy/agent.sock

  # until the proxy and a database are available; after a minute it continues without them
  outrider-agent wait --for=proxy --for=tcp://db:5432 --on-timeout=continue

  # until this container answers on its own port
  outrider-agent wait --probe '{"tcpSocket":{"port":6379}}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.FromEnv(cmd.Flags()); err != nil {
				return err
			}
			if err := o.checkNumbers(); err != nil {
				return &cli.UsageError{Err: err}
			}
			if o.probe != "" {
				return o.awaitProbe(cmd.Context(), cmd.Flags())
			}
			return o.await(cmd.Context(), cmd.Flags(), cmd.ErrOrStderr(), cmd.Root().Name())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&o.timeoutSeconds, "timeoutSeconds", 60, "how long to wait")
	fs.IntVar(&o.requestMillis, "requestTimeoutMillis", 500, "how long to wait for the first sign that the agent holds a request")
	fs.IntVar(&o.periodMillis, "periodMillis", 500, "how often to poll an endpoint that does not hold requests")
	fs.StringVar(&o.url, "url", fmt.Sprintf("http://localhost:%d%s", contract.ReadinessPort, contract.ReadyPath), "the endpoint; or unix:///path of the agent's socket")
	fs.StringVar(&o.level, "level", "", "what ready means: outbound (default) or full, the app's own health too")
	fs.StringVar(&o.as, "as", "", "name of the waiter in the agent's journal; default: this pod and process")
	fs.StringVar(&o.stateDir, "state-dir", contract.OwnDir, "directory of the agent's state file, watched if it is there")
	fs.StringVar(&o.probe, "probe", "", "JSON of a pod's probe to wait for, in place of the proxy")
	fs.StringArrayVar(&o.on, "for", nil, "what to wait for instead of the proxy; repeat it for more")
	fs.StringVar(&o.onTimeout, "on-timeout", string(ready.Fail), "fail, or continue: exit with status 0, and print what is missing")
	cli.BindEnv(fs, "state-dir", "OUTRIDER_STATE_DIR")
	return cmd
}

// awaitProbe waits until the probe succeeds.
func (o *waitOptions) awaitProbe(ctx context.Context, fs *pflag.FlagSet) error {
	for _, other := range []string{"url", "level", "for", "on-timeout"} {
		if fs.Changed(other) {
			return &cli.UsageError{Err: fmt.Errorf("--probe conflicts with --%s: give one of them", other)}
		}
	}
	probe, err := gate.ParseProbe(o.probe)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--probe: %w", err)}
	}
	if fs.Changed("timeoutSeconds") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(o.timeoutSeconds)*time.Second)
		defer cancel()
	}
	var last error
	if !probe.Await(ctx, func(err error) { last = err }) {
		return fmt.Errorf("the probe has not succeeded: %w", cmp.Or(last, context.Cause(ctx)))
	}
	return nil
}

// otherPause is the longest pause between two requests to an endpoint that does not hold them.
const otherPause = 50 * time.Millisecond

func (o waitOptions) checkNumbers() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"timeoutSeconds", o.timeoutSeconds}, {"requestTimeoutMillis", o.requestMillis}, {"periodMillis", o.periodMillis}} {
		if f.value <= 0 || f.value > 1<<31 {
			return fmt.Errorf("--%s=%d: want a positive number", f.name, f.value)
		}
	}
	return nil
}

// await waits for the proxy, or for the conditions of --for.
func (o *waitOptions) await(ctx context.Context, fs *pflag.FlagSet, stderr io.Writer, name string) error {
	if !strings.Contains(o.url, "://") { // a container's name, which package ready accepts, is no URL
		return &cli.UsageError{Err: fmt.Errorf("--url=%q: want http://host:port/path or unix:///path", o.url)}
	}
	w, err := ready.New(o.conditions(fs, stderr, name)...)
	if err != nil {
		return &cli.UsageError{Err: cmp.Or(errors.Unwrap(err), err)} // drop the prefix with the package's name
	}
	err = w.Wait(ctx)
	var failed *ready.Error
	if !errors.As(err, &failed) {
		return err
	}
	return o.failure(failed, name)
}

// conditions converts the flags into options of package ready.
func (o *waitOptions) conditions(fs *pflag.FlagSet, stderr io.Writer, name string) []ready.Option {
	out := []ready.Option{
		ready.For(time.Duration(o.timeoutSeconds) * time.Second), ready.Policy(o.onTimeout), ready.StateDirs(o.stateDir, ""),
	}
	log := slog.New(slog.DiscardHandler) // pilot-agent's wait prints nothing before its end
	if len(o.on) > 0 {
		log = slog.New(&lines{to: stderr, name: name})
	}
	out = append(out, ready.Log(log))
	proxy := len(o.on) == 0
	for _, on := range o.on {
		if proxy = proxy || on == proxyWord; on != proxyWord {
			out = append(out, ready.On(on))
		}
	}
	switch {
	case !proxy:
	case len(o.on) > 0 && !fs.Changed("url"):
		out = append(out, ready.Proxy())
	default:
		out = append(out, ready.Proxy(o.url))
	}
	if o.level != "" {
		out = append(out, ready.Level(o.level))
	}
	if o.as != "" {
		out = append(out, ready.Name(o.as))
	}
	// The flags' defaults are pilot-agent's. They fit one endpoint of this pod, not --for.
	if len(o.on) == 0 || fs.Changed("requestTimeoutMillis") {
		out = append(out, ready.Attempt(time.Duration(o.requestMillis)*time.Millisecond))
	}
	if len(o.on) == 0 || fs.Changed("periodMillis") {
		out = append(out, ready.Every(min(time.Duration(o.periodMillis)*time.Millisecond, otherPause)))
	}
	return out
}

// failure returns the error of a failed wait, with a hint.
func (o *waitOptions) failure(e *ready.Error, name string) error {
	if len(o.on) > 0 || len(e.Missing) != 1 || !errors.Is(e.Cause, context.DeadlineExceeded) {
		return e
	}
	err := fmt.Errorf("the proxy was not ready within %s: %w", time.Duration(o.timeoutSeconds)*time.Second, e.Missing[0].Err)
	if hint := e.Missing[0].Hint; hint != "" {
		err = fmt.Errorf("%w\n%s: hint: %s", err, name, hint)
	}
	return err
}

// lines is a log handler that writes each record as one line, like the command's other messages.
type lines struct {
	slog.Handler
	to   io.Writer
	name string
}

func (*lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := l.name + ": " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Key + " " + a.Value.String()
		return true
	})
	_, err := fmt.Fprintln(l.to, text)
	return err
}
