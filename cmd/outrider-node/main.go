// Command outrider-node is the part of Outrider that runs on a node: the daemon of a DaemonSet, the CNI
// plugin (as outrider-cni), and the guard that a container runtime launches.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/node/cni"
	"outrider.dev/internal/core/node/daemon"
	"outrider.dev/internal/core/node/kubenode"
	"outrider.dev/internal/core/node/nri"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// Limits for the garbage collector: the heap is small, and the start of a pod needs a few kilobytes.
const (
	memoryLimit = 12 << 20
	collectAt   = 50
)

// launched is the environment variable with the file descriptor of the plugin's connection. A runtime sets it if
// it launches the plugin.
const launched = "NRI_PLUGIN_SOCKET"

// run is main without access to the process. It returns the exit status: 0 success, 1 a failure, 2
// unusable input.
func run(argv []string, stdout, stderr io.Writer) int {
	name := filepath.Base(argv[0])
	if name == cni.Program {
		return cni.Main(stdout)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	args := argv[1:]
	if name == daemon.GuardFile {
		args = []string{"guard"}
	}
	root := &cobra.Command{
		Use:   "outrider-node",
		Short: "the part of Outrider that runs on a node",
		Long: `Orders the start of pods and captures their connections from the node: without an init
container, and without privileges in the pod. "serve" is the daemon on each node.`,
	}
	root.AddCommand(newServe(), newReady(), newGuard(), newRemove(), newLeave(), cli.VersionCommand())
	return cli.Run(root, args, stdout, stderr, nil)
}

// flags contains the values of the flags that several commands share.
type flags struct {
	o         daemon.Options
	root      string
	node      string
	daemonSet string
	logLevel  slog.Level
}

// defaultReady is a path within the container, so each container has its own file.
const defaultReady = "/var/tmp/outrider-node/ready"

func (f *flags) paths(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.o.CNIConf, "cni-conf-dir", "/etc/cni/net.d", "the node's network configurations")
	fs.StringVar(&f.o.CNIBin, "cni-bin-dir", "/opt/cni/bin", "the node's CNI plugins")
	fs.StringVar(&f.o.NRISocket, "nri-socket", nri.DefaultSocket, "where the container runtime listens for its plugins")
	fs.StringVar(&f.o.NRIPlugins, "nri-plugin-dir", "/opt/nri/plugins", "folder from which the container runtime launches plugins when it starts, for the guard; empty: no guard")
	fs.StringVar(&f.root, "root", "", "before the paths of the node that have no flag")
	fs.Lookup("root").Hidden = true // for tests
	fs.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
}

func (f *flags) account(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.node, "node", "", "name of this node")
	cli.BindEnv(fs, "node", "NODE_NAME")
	fs.StringVar(&f.daemonSet, "daemonset", "", "NAMESPACE/NAME of the DaemonSet: when it is deleted, the node is restored")
}

// finish reads the environment and completes the options.
func (f *flags) finish(cmd *cobra.Command) error {
	if err := cli.FromEnv(cmd.Flags()); err != nil {
		return err
	}
	f.o.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: f.logLevel}))
	f.o.AgentsDir, f.o.StatesDir, f.o.RunDir = f.root+contract.NodeAgentsDir, f.root+contract.NodeStatesDir, f.root+contract.NodeRunDir
	if f.daemonSet != "" {
		namespace, name, ok := strings.Cut(f.daemonSet, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return &cli.UsageError{Err: fmt.Errorf("--daemonset=%q: must be NAMESPACE/NAME", f.daemonSet)}
		}
		f.o.DaemonSetNamespace, f.o.DaemonSet = namespace, name
	}
	return nil
}

func (f *flags) client() (err error) {
	if f.node == "" && f.daemonSet == "" {
		return nil
	}
	f.o.Kube, err = kubenode.InCluster(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), f.root+kubenode.AccountDir, f.node)
	return err
}

func ended(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}

func newServe() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "install the plugins on this node, and serve their requests",
		Long: `Installs the CNI plugin and the guard, keeps the CNI plugin in the network configuration
when other programs rewrite it, and registers with the container runtime (NRI). The node has the label
` + contract.NodeLabel + `=` + contract.NodeInstalled + ` once all of it works, and in addition the taint
` + contract.NodeTaint + ` while it no longer does.

Of several processes on a node one leads, and the others take over when it ends.`,
		Example: `  outrider-node serve --node=$NODE_NAME --daemonset=outrider-system/outrider-node
  outrider-node serve --cni-conf-dir=/var/lib/rancher/k3s/agent/etc/cni/net.d   # k3s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.finish(cmd); err != nil {
				return err
			}
			var err error
			if f.o.Program, err = os.Executable(); err != nil {
				return err
			}
			if f.o.Agent == "" {
				f.o.Agent = filepath.Join(filepath.Dir(f.o.Program), "outrider-agent")
			}
			if err := f.client(); err != nil {
				return err
			}
			ctx, stop := ended(cmd)
			defer stop()
			return daemon.Serve(ctx, f.o)
		},
	}
	f.paths(cmd)
	f.account(cmd)
	cmd.Flags().StringVar(&f.o.Agent, "agent", "", "path of the agent of the same version; default: outrider-agent next to this program")
	cmd.Flags().StringVar(&f.o.ReadyFile, "ready-file", defaultReady, "file with the reason why the plugins do not work; empty while they work")
	cmd.Flags().StringSliceVar(&f.o.Handlers, "runtime-handler", nil, "handler of a RuntimeClass that runs containers on the node's kernel, in addition to runc, crun, youki and NVIDIA's; may be repeated")
	cmd.Flags().StringVar(&f.o.RuntimeConfig, "runtime-config", "", "containerd's configuration, from which the Node's label says whether the validator is on; empty: \"unknown\"")
	cmd.Flags().StringVar(&f.o.Metrics, "metrics-address", "", "[HOST]:PORT on which the leading process serves metrics for Prometheus, at /metrics; empty: none")
	cmd.Flags().BoolVar(&f.o.Taint, "taint", true, "keep all pods from a node whose plugins no longer work; without it, the label keeps away only the pods that need them")
	return cmd
}

func newReady() *cobra.Command {
	var file string
	var alive bool
	cmd := &cobra.Command{
		Use:     "ready",
		Short:   "the readiness probe of serve: exit status 0 while its plugins work",
		Example: "  outrider-node ready\n  outrider-node ready --alive   # the liveness probe",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return daemon.Ready(file, alive) },
	}
	cmd.Flags().BoolVar(&alive, "alive", false, "check only that the daemon runs and does not hang")
	cmd.Flags().StringVar(&file, "ready-file", defaultReady, "file of serve")
	return cmd
}

func newGuard() *cobra.Command {
	return &cobra.Command{
		Use:   "guard",
		Short: "refuse containers that this node's daemon should have adjusted and did not",
		Long: `Refuses containers that this node's daemon should have adjusted and did not. The container
runtime launches the guard from its plugin folder when it starts, so that containers are refused
also before the daemon has connected. The guard ends when its file is removed or replaced.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := given(os.Getenv(launched))
			if err != nil {
				return err
			}
			ctx, stop := ended(cmd)
			defer stop()
			return daemon.Guard(ctx, conn, slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil)))
		},
	}
}

// given opens the connection that the runtime gave to this process.
func given(descriptor string) (net.Conn, error) {
	fd, err := strconv.ParseUint(descriptor, 10, 16)
	if err != nil {
		return nil, &cli.UsageError{Err: errors.New("there is no connection to a container runtime"), Hint: "a container runtime runs this command; " + launched + " has the descriptor"}
	}
	for _, name := range []string{launched, "NRI_PLUGIN_NAME", "NRI_PLUGIN_IDX"} { // removed, because the NRI library would open its own connection with them
		os.Unsetenv(name)
	}
	file := os.NewFile(uintptr(fd), "nri")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("%s=%s: %w", launched, descriptor, err)}
	}
	return conn, nil
}

func newRemove() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "restore this node: network configuration, plugins, and the files that no running pod uses",
		Long: `Restores this node as it was before the installation. The daemon does it itself when its DaemonSet
is deleted; this command is for a node whose daemon was killed. Running pods go on.`,
		Example: "  outrider-node remove",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.finish(cmd); err != nil {
				return err
			}
			ctx, stop := ended(cmd)
			defer stop()
			return daemon.Remove(ctx, f.o)
		},
	}
	f.paths(cmd)
	return cmd
}

func newLeave() *cobra.Command {
	f := &flags{}
	var wait time.Duration
	cmd := &cobra.Command{
		Use:     "leave",
		Short:   "delete the DaemonSet, and wait until each node is restored",
		Example: "  outrider-node leave --daemonset=outrider-system/outrider-node",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.finish(cmd); err != nil {
				return err
			}
			if f.daemonSet == "" {
				return &cli.UsageError{Err: errors.New("--daemonset is missing"), Hint: cmd.CommandPath() + " --help shows it"}
			}
			if err := f.client(); err != nil {
				return err
			}
			ctx, stop := ended(cmd)
			defer stop()
			ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("not all pods have ended within %s", wait))
			defer cancel()
			return f.o.Kube.Leave(ctx, f.o.DaemonSetNamespace, f.o.DaemonSet, time.Second)
		},
	}
	f.account(cmd)
	cmd.Flags().StringVar(&f.root, "root", "", "before the path of the service account")
	cmd.Flags().Lookup("root").Hidden = true
	cmd.Flags().DurationVar(&wait, "wait", 4*time.Minute, "how long")
	return cmd
}
