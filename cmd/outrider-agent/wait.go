package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outrider.dev/internal/agent/gate"
	"outrider.dev/internal/agent/readiness"
	"outrider.dev/internal/agent/status"
	"outrider.dev/internal/cli"
	"outrider.dev/internal/contract"
	"outrider.dev/internal/wire"
)

// waitOptions are the flags of wait; the first four are pilot-agent's.
type waitOptions struct {
	timeoutSeconds, requestMillis, periodMillis int

	url      string
	level    string
	as       string
	stateDir string
	probe    string
}

func newWait() *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "wait until the proxy is ready, or print why it is not",
		Long: `Sends a request at once. A running agent holds it and answers in the moment at which the
proxy is ready, without polling. Before there is an agent, the request is sent again as
soon as one writes its state file, or a little later.

With --level=full it waits for the applications too: each container must be healthy by
its gate, or by its readiness (else startup) probe, which the agent then makes. The wait
fails, with the reason, if a container has neither.

With --probe it waits until a probe of this container succeeds, without a limit unless
--timeoutSeconds is given: injection writes that into the postStart hook of a container
that others wait for.

The endpoint of another mesh, which does not hold requests, is polled every
--periodMillis, but at least every 50 ms.`,
		Example: `  # what Istio's injector writes into a hook
  pilot-agent wait

  # until the applications are healthy too, by the agent's socket: in the proxy's container
  outrider-agent wait --level=full --url=unix:///outrider/own/agent.sock

  # the same in a container that has a gate
  outrider-agent wait --level=full --url=unix:///outrider/state/outrider-proxy/agent.sock

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
			w, err := o.waiter()
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			return w.wait(cmd.Context(), cmd.Root().Name())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&o.timeoutSeconds, "timeoutSeconds", 60, "how long to wait")
	fs.IntVar(&o.requestMillis, "requestTimeoutMillis", 500, "how long one request may go without a sign of being held")
	fs.IntVar(&o.periodMillis, "periodMillis", 500, "how often to poll an endpoint that does not hold requests")
	fs.StringVar(&o.url, "url", fmt.Sprintf("http://localhost:%d%s", contract.ReadinessPort, contract.ReadyPath), "the endpoint; or unix:///path of the agent's socket")
	fs.StringVar(&o.level, "level", "", "what ready means: outbound (default) or full, the app's own health too")
	fs.StringVar(&o.as, "as", "", "name of the waiter in the agent's journal; default: this pod and process")
	fs.StringVar(&o.stateDir, "state-dir", contract.OwnDir, "directory of the agent's state file, watched if it is there")
	fs.StringVar(&o.probe, "probe", "", "JSON of a pod's probe: wait for that, and not for the proxy")
	cli.BindEnv(fs, "state-dir", "OUTRIDER_STATE_DIR")
	return cmd
}

// awaitProbe returns nil once the probe has succeeded.
func (o *waitOptions) awaitProbe(ctx context.Context, fs *pflag.FlagSet) error {
	for _, other := range []string{"url", "level"} {
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

// A waiter polls one endpoint until it is ready.
type waiter struct {
	timeout, limit, period time.Duration

	url      *url.URL
	shown    string // the URL as it was given
	as       string
	client   *http.Client
	stateDir string
}

// Pauses between two requests that are not held.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = 100 * time.Millisecond
	otherPause   = 50 * time.Millisecond
)

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

// waiter checks the flags.
func (o waitOptions) waiter() (*waiter, error) {
	level, err := readiness.ParseLevel(o.level)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	u, err := url.Parse(o.url)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	w := &waiter{
		timeout: time.Duration(o.timeoutSeconds) * time.Second,
		limit:   time.Duration(o.requestMillis) * time.Millisecond,
		period:  min(time.Duration(o.periodMillis)*time.Millisecond, otherPause),
		url:     u, shown: o.url, as: o.as, stateDir: o.stateDir,
	}
	if w.as == "" {
		host, _ := os.Hostname()
		w.as = fmt.Sprintf("%s pid %d", host, os.Getpid())
	}
	transport := &http.Transport{DisableCompression: true} // and no proxy of the environment
	switch {
	case u.Scheme == "unix" && u.Path != "":
		path := u.Path
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		w.url = &url.URL{Scheme: "http", Host: "agent", Path: contract.ReadyPath}
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("--url=%q: want http://host:port/path or unix:///path", o.url)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("--url=%q: port %s: want a number from 1 to 65535", o.url, port)
		}
	}
	if level != readiness.Outbound {
		q := w.url.Query()
		q.Set("level", string(level))
		w.url.RawQuery = q.Encode()
	}
	w.client = &http.Client{Transport: transport}
	return w, nil
}

// An answer is what came of one request.
type answer struct {
	ready bool
	agent bool // by an agent that holds requests
	why   string
	hint  string
	err   error // there was no answer
}

// wait returns nil once it is ready. name is the program's, for hints.
func (w *waiter) wait(ctx context.Context, name string) error {
	began := time.Now()
	end := began.Add(w.timeout)
	changed, stop := watch(filepath.Join(w.stateDir, status.StateFile))
	defer stop()
	pause := firstPause
	for {
		a := w.request(ctx, end)
		if a.ready {
			return nil
		}
		if !time.Now().Before(end) || ctx.Err() != nil {
			return w.failed(name, a)
		}
		if a.err == nil && !a.agent {
			pause = w.period
		}
		select {
		case <-changed:
		case <-time.After(min(pause, time.Until(end))):
			pause = min(2*pause, longestPause)
		case <-ctx.Done():
		}
	}
}

// answerSlack is how much later than requested the answer to a held request may come.
const answerSlack = time.Second

// request makes one request, which the agent may hold until end.
func (w *waiter) request(ctx context.Context, end time.Time) answer {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The limit is for a request that is not reported as held.
	limit := time.AfterFunc(w.limit, func() { cancel(fmt.Errorf("no answer within %s", w.limit)) })
	defer limit.Stop()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if code == http.StatusProcessing {
				limit.Reset(time.Until(end) + answerSlack)
			}
			return nil
		},
	})
	u := *w.url
	q := u.Query()
	q.Set("wait", max(time.Until(end), 0).Round(time.Millisecond).String())
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set(status.WaiterHeader, w.as)
	req.Header.Set("Accept", "application/json")
	res, err := w.client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return answer{err: plain(err)}
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	a := answer{ready: res.StatusCode == http.StatusOK, agent: res.Header.Get(status.AgentHeader) != ""}
	if !a.ready {
		a.why, a.hint = reasons(res.StatusCode, body)
	}
	return a
}

// plain is err without the URL, which the message already has.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return err
}

// reasons reads why an endpoint is not ready.
func reasons(code int, body []byte) (why, hint string) {
	var s readiness.Status
	if json.Unmarshal(body, &s) == nil && len(s.Reasons) > 0 {
		return s.String(), s.Reasons[0].Hint
	}
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(body[:min(len(body), 300)]), "?")), " ")
	return strings.TrimSpace("it answers " + strconv.Itoa(code) + " " + text), ""
}

// failed is the error of a wait that was in vain.
func (w *waiter) failed(name string, a answer) error {
	if a.err != nil {
		a.why = fmt.Sprintf("no answer from %s: %v", w.shown, a.err)
		a.hint = "is the proxy's container running, and in this pod?"
	}
	err := fmt.Errorf("the proxy was not ready within %s: %s", w.timeout, a.why)
	if a.hint != "" {
		err = fmt.Errorf("%w\n%s: hint: %s", err, name, a.hint)
	}
	return err
}

// watch returns a channel that gets a value after a change in the directory of a file. Without
// inotify, or before the directory exists, it gets one every longestPause.
func watch(file string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	return c, wire.WatchFiles(longestPause, func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}, file)
}
