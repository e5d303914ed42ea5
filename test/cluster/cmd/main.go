// Command cluster runs a one-node Kubernetes on this machine, in namespaces of its own; its
// subcommands start it, run commands inside, and end it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"outrider.dev/test/cluster"
)

const usage = `usage: cluster COMMAND [flags]

A real one-node Kubernetes in namespaces of its own: nothing of it touches the
network of this machine, and nothing is left when it is down.

  up        build what is missing, bring a cluster up, say how to use it
  run       bring a cluster up for a command, and end it with the command: tests
            that it runs share the cluster, $OUTRIDER_CLUSTER
  enter     run a command inside; without one, a shell
  down      end a cluster; its logs stay

flags, after the command:
  --kube VERSION   %s (default: $KUBE, else %s)
  --runtime NAME   %s (default: $RUNTIME, else %s)
  --dir DIR        of the cluster (default: .cache/cluster/run/VERSION, with the
                   runtime if it is not the default); choose others to run more
                   than one of a version
  --features LIST  up and run: feature gates that are switched on, with commas
  --apis LIST      up and run: resources that the API server serves besides its
                   default ones, with commas

examples:
  cluster up
  cluster enter kubectl get pods --all-namespaces
  cluster enter ctr images list
  cluster run -- go test ./test/e2e  # with OUTRIDER_E2E=1
  cluster up --kube v1.36            # beside the first one
  cluster enter --kube v1.36         # a shell on its node
  cluster down --kube v1.36
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its arguments and outputs as parameters. It returns the exit status: 0 success, 1 failure,
// 2 usage, 130 interrupted; the subcommands enter and run return the exit status of the command that they run.
func run(args []string, stdout, stderr io.Writer) int {
	help := fmt.Sprintf(usage, strings.Join(cluster.Versions, " or "), cluster.Versions[0],
		strings.Join(cluster.Runtimes, " or "), cluster.Runtimes[0])
	if len(args) == 0 {
		fmt.Fprint(stderr, help)
		return 2
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(stdout, help)
		return 0
	}
	do, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "cluster: error: no command %q\ncluster: hint: see cluster --help\n", args[0])
		return 2
	}
	options := cluster.Options{Detach: true, Progress: stderr}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, help) }
	flags.StringVar(&options.Version, "kube", os.Getenv("KUBE"), "")
	flags.StringVar(&options.Runtime, "runtime", os.Getenv("RUNTIME"), "")
	flags.StringVar(&options.Dir, "dir", "", "")
	for name, list := range map[string]*[]string{"features": &options.Features, "apis": &options.APIs} { // any order: each is a flag
		flags.Func(name, "", func(value string) error { *list = strings.Split(value, ","); return nil })
	}
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := do(ctx, call{options, flags.Args(), stdout, stderr})
	if err == nil {
		return status
	}
	fmt.Fprintln(stderr, "cluster: error:", err)
	if errors.Is(err, cluster.ErrDown) {
		fmt.Fprintln(stderr, "cluster: hint: cluster up starts one")
	}
	if ctx.Err() != nil {
		return 130
	}
	return max(status, 1)
}

// A call holds the arguments and outputs of a subcommand.
type call struct {
	options        cluster.Options
	args           []string
	stdout, stderr io.Writer
}

var commands = map[string]func(context.Context, call) (status int, err error){"down": down, "enter": enter, "run": around, "up": up}

// up starts a cluster. If one is already running, up leaves it unchanged and succeeds.
func up(ctx context.Context, c call) (int, error) {
	start := time.Now()
	dir, err := c.options.Directory()
	if err != nil {
		return 2, err
	}
	found, err := cluster.Open(dir)
	switch {
	case errors.Is(err, cluster.ErrDown):
		if found, err = cluster.Up(ctx, c.options); err != nil {
			return 1, err
		}
		fmt.Fprintf(c.stderr, "%6.1fs  cluster is up\n", time.Since(start).Seconds())
	case err != nil:
		return 1, err
	case c.options.Version != "" && c.options.Version != found.Version():
		return 1, fmt.Errorf("a %s cluster is up in %s: choose another --dir, or end that one", found.Version(), dir)
	case c.options.Runtime != "" && c.options.Runtime != found.Runtime():
		return 1, fmt.Errorf("a cluster with %s is up in %s: choose another --dir, or end that one", found.Runtime(), dir)
	default:
		fmt.Fprintln(c.stderr, "        cluster was up already")
	}
	self := commandName(c.options)
	fmt.Fprintf(c.stdout, `
Kubernetes %s with %s is up. It can be reached from inside only:

  %[3]s kubectl get nodes
  %[3]s kubectl run hello --image=%[4]s --command -- sleep 1h
  %[3]s                            # a shell on the node
  %[5]s

kubeconfig: %[6]s
logs:       %[7]s/log
`, found.Version(), found.Runtime(), self("enter"), cluster.BaseImage, self("down"), found.Kubeconfig(), found.Dir())
	return 0, nil
}

// commandName returns a function that returns the command line for a subcommand on the same cluster.
func commandName(o cluster.Options) func(command string) string {
	program := os.Args[0]
	if strings.Contains(program, "/go-build") {
		program = "go run ./test/cluster/cmd" // go run has removed its temporary binary
	}
	var flags string
	if o.Version != "" && o.Version != cluster.Versions[0] {
		flags += " --kube " + o.Version
	}
	if o.Runtime != "" && o.Runtime != cluster.Runtimes[0] {
		flags += " --runtime " + o.Runtime
	}
	if o.Dir != "" {
		flags += " --dir " + o.Dir
	}
	return func(command string) string { return program + " " + command + flags }
}

// around starts a new cluster, runs a command outside of it, on the machine, and ends the cluster.
func around(ctx context.Context, c call) (status int, err error) {
	if len(c.args) == 0 {
		return 2, errors.New("run needs a command")
	}
	dir, err := c.options.Directory()
	if err != nil {
		return 2, err
	}
	c.options.Dir, c.options.Detach = cmp.Or(c.options.Dir, dir+"-run"), false // the user's own cluster may be running in the default directory
	found, err := cluster.Up(ctx, c.options)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, found.Down()) }()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), cluster.Shared+"="+found.Dir())
	cmd.Stdout, cmd.Stderr = c.stdout, c.stderr
	// The command and the processes that it starts are one process group, so that one signal ends all.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() == nil && errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func down(_ context.Context, c call) (int, error) {
	dir, err := c.options.Directory()
	if err != nil {
		return 2, err
	}
	return 0, cluster.Down(dir)
}

// enter replaces this process by the command, so that every signal goes to the command.
func enter(ctx context.Context, c call) (int, error) {
	dir, err := c.options.Directory()
	if err != nil {
		return 2, err
	}
	found, err := cluster.Open(dir)
	if err != nil {
		return 1, err
	}
	if len(c.args) == 0 {
		c.args = []string{"/bin/sh"}
	}
	cmd := found.Enter(ctx, c.args[0], c.args[1:]...)
	return 1, syscall.Exec(cmd.Path, cmd.Args, cmd.Environ())
}
