// Package node runs inside a test cluster: it is the first process of
// its namespaces, changes the view of the machine's files, and starts
// the programs of Kubernetes in the right order.
//
// Two processes share the work. [Run] brings the cluster up. [Init] is process 1 and the
// parent of Run. It only waits and then ends everything, so that it can still clean up
// if Run crashes.
package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// The addresses are the same in every cluster, because each cluster has its own network namespace.
const (
	Name          = "node1"
	Address       = "10.10.0.1"
	PodRange      = "10.244.0.0/24"
	ServiceRange  = "10.96.0.0/16"
	APIService    = "10.96.0.1"
	DNSService    = "10.96.0.10"
	Domain        = "cluster.local"
	API           = "https://" + Address + ":6443"
	PodBridge     = "cni0"
	Containerd    = "/run/containerd/containerd.sock"
	networkPrefix = "/24"
)

// File descriptors that the starter of a cluster passes to [Init].
const (
	eventsFile = 3 // for writing each [Event] as JSON
	leashFile  = 4 // for reading; the cluster ends when the starter closes its end
)

// Keep is written to the leash to let the cluster outlive its starter.
const Keep = 'k'

// A Config holds the paths of the parts of one cluster. Its zero value is not usable.
type Config struct {
	Dir     string   // directory with configuration, keys, logs, container files
	Bin     string   // directory with the programs of Kubernetes
	Runtime string   // directory with the container runtime; default: the distribution's runtime
	CoreDNS string   // path of the program
	Node    string   // path of this program
	Group   string   // name of the cluster in the cgroup hierarchies
	Images  []string // image tarballs that are imported at the start

	Features, APIs []string // features and APIs to enable in the API server besides its defaults
}

// Load reads a Config from a JSON file.
func Load(file string) (Config, error) {
	var c Config
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("reading %s: %w", file, err)
	}
	return c, nil
}

// PKI, Conf and Log return the path of a file in the cluster's directory.
func (c Config) PKI(name string) string  { return filepath.Join(c.Dir, "pki", name) }
func (c Config) Conf(name string) string { return filepath.Join(c.Dir, "conf", name) }
func (c Config) Log(name string) string  { return filepath.Join(c.Dir, "log", name) }

// Kubeconfig returns the path of an administrator's configuration.
func (c Config) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// Environ returns the environment of a program in the cluster: the variables own, followed by variables that override
// them.
func (c Config) Environ(own []string) []string {
	return append(own,
		"PATH="+c.Bin+":"+cmp.Or(c.Runtime, c.Bin)+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:"+os.Getenv("PATH"),
		"KUBECONFIG="+c.Kubeconfig(),
		"CONTAINERD_ADDRESS="+Containerd,
		"CONTAINERD_NAMESPACE=k8s.io",
	)
}

// An Event reports a cluster's progress to its starter.
type Event struct {
	Phase string `json:",omitempty"` // the phase that was just completed
	Ready bool   `json:",omitempty"` // the cluster is usable: the last event
	Error string `json:",omitempty"` // the cluster failed to start: the last event
}
