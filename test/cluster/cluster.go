// Package cluster runs a whole Kubernetes node on this machine, for tests and for
// people: etcd, API server, controllers, scheduler, kubelet, kube-proxy, DNS and
// containerd, in namespaces of their own. Nothing of it touches the network of the
// machine, and one kill ends it.
//
//	c, err := cluster.Up(ctx, cluster.Options{})
//	defer c.Down()
//	out, err := c.Enter(ctx, "kubectl", "get", "nodes").CombinedOutput()
//
// Between the machine and the cluster there is no network. What is to talk to the
// API server or to a pod runs inside, by [Cluster.Enter]: it sees the same files,
// except for [Hidden] directories. Compile a test before it enters; inside there is
// nothing to download from.
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

// Versions are the versions of Kubernetes that can be brought up; the first is the
// default.
var Versions = []string{"v1.34", "v1.36"}

// BaseImage is there in every cluster: busybox under all its names, and iptables.
const BaseImage = "test.outrider.dev/base:1"

// Shared is the variable with the directory of a cluster that is up for several programs, of which
// none ends it: "cluster run" sets it.
const Shared = "OUTRIDER_CLUSTER"

// Hidden are the directories of the machine that the cluster sees empty.
var Hidden = node.Hidden

// bringUpLimit is many times what it takes on two cores that are not idle.
const bringUpLimit = 5 * time.Minute

// Options of a cluster. The zero value of a field means its default.
type Options struct {
	Version  string    // one of Versions
	Runtime  string    // one of Runtimes
	Dir      string    // keys, logs, container files; default: run/<Version> in the cache, and Runtime if it is not the first
	Cache    string    // what was built; default: .cache/cluster in the repository
	Detach   bool      // the cluster outlives this process; otherwise it ends with it
	Progress io.Writer // a line for each step; default: none

	// KubeletLog makes the kubelet log more, by source file: {"generic": 5} is as
	// its flag --vmodule=generic=5.
	KubeletLog map[string]int

	// Features are feature gates that are switched on in the API server and the kubelet, and APIs are
	// resources that the API server serves besides its default ones, as
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

// Directory returns where a cluster with these options has its files.
func (o Options) Directory() (string, error) {
	o, err := o.withDefaults()
	return o.Dir, err
}

// visible returns the absolute path of dir, if the cluster can see it.
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

// A Cluster is up, or was when it was returned.
type Cluster struct {
	state  state
	config node.Config
	inside bool     // this process is in its namespaces
	leash  *os.File // nil unless this process started a cluster that ends with it
}

// Open returns the cluster that is up in dir. If there is none, the error is
// [ErrDown].
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

// Inside returns the cluster that has its files in dir to a process that runs inside of it,
// such as a test that [Cluster.Enter] started. It cannot end it.
func Inside(dir string) (*Cluster, error) {
	s, err := readState(dir)
	if err != nil {
		return nil, err
	}
	config, err := node.Load(s.configFile())
	return &Cluster{state: s, config: config, inside: true}, err
}

// ErrDown: no cluster is up in that directory.
var ErrDown = errors.New("no cluster is up")

// Version is the version of Kubernetes, such as v1.34.
func (c *Cluster) Version() string { return c.state.Version }

// Runtime is its container runtime, one of [Runtimes].
func (c *Cluster) Runtime() string { return c.state.Runtime }

// Dir is the directory of the cluster. Its logs outlive it, in log.
func (c *Cluster) Dir() string { return c.state.Dir }

// Kubeconfig is the path of an administrator's configuration. The server in it can
// be reached from inside only.
func (c *Cluster) Kubeconfig() string { return c.config.Kubeconfig() }

// PID is process 1 of the cluster as the machine sees it; its namespaces are those
// of the node.
func (c *Cluster) PID() int { return c.state.PID }

// Enter returns a command that runs in the network, mount and process namespaces of
// the node, in the current directory, with kubectl and ctr ready to use. When ctx
// ends it is sent SIGTERM, and after five seconds SIGKILL.
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

// LoadImage imports the images of a tarball, as written by package image or by
// `docker save`. Pods name them in full and need imagePullPolicy Never or
// IfNotPresent.
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

// Restart kills containerd, kubelet or kube-apiserver, and starts it again; pods run on. It returns when containerd
// answers, and when one of the others has been started.
func (c *Cluster) Restart(ctx context.Context, name string) error { return c.request(ctx, name) }

// Reboot ends the node as a loss of power does, without drain, and starts it again. All
// processes of pods, containerd, kubelet and kube-proxy are killed; all that is in memory is
// lost, as /run, other mounts and rules. What is on disk stays, as /etc, /opt and /var/lib, and
// so does the control plane with its state. Reboot returns when the new kubelet has reported
// that the node is ready; pods start at any time before or after.
func (c *Cluster) Reboot(ctx context.Context) error { return c.request(ctx, node.Reboot) }

// request lets the node do something. It is done even if ctx ends.
func (c *Cluster) request(ctx context.Context, name string) error {
	if out, err := c.Enter(ctx, c.config.Node, "control", name).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// Down ends the cluster. Nothing is left of it but its logs. Down of a cluster that
// is down already does nothing.
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
