// Package cluster runs a complete Kubernetes node on this machine, for tests and for
// developers: etcd, API server, controllers, scheduler, kubelet, kube-proxy, DNS and
// containerd, in namespaces of their own. It does not touch the network of the
// machine. The whole cluster ends when its process 1 is killed.
//
//	c, err := cluster.Up(ctx, cluster.Options{})
//	defer c.Down()
//	out, err := c.Enter(ctx, "kubectl", "get", "nodes").CombinedOutput()
//
// There is no network between the machine and the cluster. A program that talks to the
// API server or to a pod runs inside, by [Cluster.Enter]: it sees the machine's files,
// except for the [Hidden] directories. Compile a test before it enters, because nothing can be
// downloaded inside.
//
// The programs come from packages of the distribution and from Go modules. They are
// built when they are first needed, which takes minutes; see [Build].
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"outrider.dev/test/cluster/internal/node"
)

// Versions lists the supported versions of Kubernetes; the first is the default.
var Versions = []string{"v1.34", "v1.36"}

// BaseImage is an image with busybox, under the names of all its commands, and iptables. Every cluster has it.
const BaseImage = "test.outrider.dev/base:1"

// Shared is the environment variable with the directory of a cluster that "cluster run" has started. Several
// programs use that cluster, and none of them ends it.
const Shared = "OUTRIDER_CLUSTER"

// Hidden lists the directories of the machine that are empty inside the cluster.
var Hidden = node.Hidden

// bringUpLimit is the time limit of a bring-up, many times the usual duration on two busy cores.
const bringUpLimit = 5 * time.Minute

// Options configure a cluster. The zero value of a field means its default.
type Options struct {
	Version  string    // one of Versions
	Runtime  string    // one of Runtimes
	Dir      string    // for keys, logs, container files; default: run/<Version> in Cache, run/<Version>-<Runtime> for a Runtime that is not the default
	Cache    string    // for build outputs; default: .cache/cluster in the repository
	Detach   bool      // the cluster outlives this process; otherwise both end together
	Progress io.Writer // receives a line for each step; default: none

	// KubeletLog is the kubelet's log level for some source files: {"generic": 5} means the kubelet's
	// flag --vmodule=generic=5.
	KubeletLog map[string]int

	// Features are feature gates to enable in the API server and the kubelet; APIs are resources
	// that the API server serves besides its defaults, such as
	// certificates.k8s.io/v1beta1/clustertrustbundles. Default: none.
	Features, APIs []string
}

func (o Options) withDefaults() (Options, error) {
	if o.Version == "" {
		o.Version = Versions[0]
	}
	if !slices.Contains(Versions, o.Version) {
		return o, fmt.Errorf("no Kubernetes %s here, only %s", o.Version, strings.Join(Versions, ", "))
	}
	var err error
	if o, err = o.withRuntime(); err != nil {
		return o, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Cache == "" {
		root, err := repository()
		if err != nil {
			return o, err
		}
		o.Cache = filepath.Join(root, ".cache", "cluster")
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(o.Cache, "run", o.Version)
		if o.Runtime != Runtimes[0] {
			o.Dir += "-" + o.Runtime
		}
	}
	if o.Cache, err = visible(o.Cache); err != nil {
		return o, err
	}
	o.Dir, err = visible(o.Dir)
	return o, err
}

// Directory returns the directory of a cluster with these options.
func (o Options) Directory() (string, error) {
	o, err := o.withDefaults()
	return o.Dir, err
}

// visible returns the absolute path of dir, or an error if the cluster cannot see it.
func visible(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for _, h := range Hidden {
		if dir == h || strings.HasPrefix(dir, h+"/") {
			return "", fmt.Errorf("%s is below %s, which a cluster does not see; choose another directory", dir, h)
		}
	}
	return dir, nil
}

// A Cluster refers to a cluster that was running when a function of this package returned the Cluster.
type Cluster struct {
	state  state
	config node.Config
	inside bool     // this process runs in the cluster's namespaces
	leash  *os.File // set only if this process started the cluster, and the cluster ends with it
}

// Open returns the running cluster in dir, or the error [ErrDown].
func Open(dir string) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s, err := readState(dir)
	if err != nil {
		return nil, err
	}
	if !s.alive() || !s.Ready {
		return nil, fmt.Errorf("%s: %w", dir, ErrDown)
	}
	config, err := node.Load(s.configFile())
	if err != nil {
		return nil, err
	}
	return &Cluster{state: s, config: config}, nil
}

// Inside returns the cluster in dir for a process that runs inside it, such as a test that
// [Cluster.Enter] started. Such a process cannot end the cluster.
func Inside(dir string) (*Cluster, error) {
	s, err := readState(dir)
	if err != nil {
		return nil, err
	}
	config, err := node.Load(s.configFile())
	return &Cluster{state: s, config: config, inside: true}, err
}

// ErrDown means that no cluster is running in the directory.
var ErrDown = errors.New("no cluster is up")

// Version returns the version of Kubernetes, such as v1.34.
func (c *Cluster) Version() string { return c.state.Version }

// Runtime returns the container runtime, one of [Runtimes].
func (c *Cluster) Runtime() string { return c.state.Runtime }

// Dir returns the directory of the cluster. The logs, in the subdirectory log, stay after the cluster's end.
func (c *Cluster) Dir() string { return c.state.Dir }

// Kubeconfig returns the path of an administrator's configuration. Its server address is reachable
// only from inside.
func (c *Cluster) Kubeconfig() string { return c.config.Kubeconfig() }

// PID returns the process ID of the cluster's process 1 in the machine's PID namespace. Process 1 is in the namespaces
// of the node.
func (c *Cluster) PID() int { return c.state.PID }

// Enter returns a command that runs in the network, mount and process namespaces of the node, in
// the current directory, with kubectl and ctr on its path. When ctx ends the command gets SIGTERM,
// and after five seconds SIGKILL.
func (c *Cluster) Enter(ctx context.Context, name string, args ...string) *exec.Cmd {
	if !c.inside {
		args = append([]string{"enter", strconv.Itoa(c.state.PID), name}, args...)
		name = c.config.Node
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.config.Environ(os.Environ())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// LoadImage imports the images of a tarball from package image or `docker save`. Pods refer to them
// by their full names and need imagePullPolicy Never or IfNotPresent.
func (c *Cluster) LoadImage(ctx context.Context, tarball string) error {
	tarball, err := visible(tarball)
	if err != nil {
		return err
	}
	if out, err := c.Enter(ctx, "ctr", "images", "import", tarball).CombinedOutput(); err != nil {
		return fmt.Errorf("importing %s: %w: %s", tarball, err, out)
	}
	return nil
}

// Restart kills containerd, kubelet or kube-apiserver and starts it again; pods keep running. After a restart
// of containerd it returns when containerd answers, otherwise as soon as the new process has been started.
func (c *Cluster) Restart(ctx context.Context, name string) error { return c.request(ctx, name) }

// Reboot kills the node as a power loss does, without a drain, and starts it again. It kills all
// processes of pods, containerd, kubelet and kube-proxy. Everything in memory is lost, such as
// /run, other mounts and rules; files on disk stay, such as /etc, /opt and /var/lib, and so does
// the control plane with its state. Reboot returns when the new kubelet has reported that the node
// is ready; pods may start before or after that.
func (c *Cluster) Reboot(ctx context.Context) error { return c.request(ctx, node.Reboot) }

// request makes the node execute a request. The node completes it even if ctx ends.
func (c *Cluster) request(ctx context.Context, name string) error {
	if out, err := c.Enter(ctx, c.config.Node, "control", name).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// Down ends the cluster and removes everything except its logs. If the cluster is already down, it
// does nothing.
func (c *Cluster) Down() error {
	if c.inside {
		return errors.New("a cluster is not ended from inside: the end would end this process")
	}
	err := Down(c.state.Dir)
	if c.leash != nil {
		c.leash.Close()
		c.leash = nil
	}
	return err
}
