// Package node is the inside of a test cluster: the first process of
// its namespaces, the view of the machine in there, and the order in which
// the programs of Kubernetes are started.
//
// Two processes share the work. [Init] is process 1 and only ends
// everything at the right moment, so that it cannot fail before that. [Run] is its
// child and brings the cluster up; if it crashes, Init still cleans up.
package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// The addresses are the same in every cluster: each has a network of its own.
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
	eventsFile = 3 // written: one [Event] after another, as JSON
	leashFile  = 4 // read: the cluster ends when the other end is closed
)

// Keep is written to the leash to let the cluster outlive its starter.
const Keep = 'k'

// A Config holds the paths of the parts of one cluster. Its zero value is not usable.
type Config struct {
	Dir     string   // the cluster's: configuration, keys, logs, container files
	Bin     string   // with the programs of Kubernetes
	Runtime string   // with the container runtime; default: the distribution's
	CoreDNS string   // path of the program
	Node    string   // path of this program
	Group   string   // name of the cluster in the cgroup hierarchies
	Images  []string // image tarballs that are imported at the start

	Features, APIs []string // of the API server, besides its default ones
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

// Environ returns the environment of a program in the cluster: its own, with additions that override it.
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
