package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"runtime"
	"strings"

	"outrider.dev/internal/base/contract"
)

// Inputs are the sources of a Config. The command passes those of its process; tests pass their own.
type Inputs struct {
	Flags     map[string]string // by name; only those given on the command line
	Environ   []string          // NAME=value
	ReadFile  func(string) ([]byte, error)
	Addresses func() ([]netip.Addr, error) // of this machine, besides INSTANCE_IP
	Version   string                       // of the agent, for the control plane
}

// An Error reports a setting that cannot be used.
type Error struct {
	Where string // "variable SECRET_TTL", "PROXY_CONFIG: concurrency", "--domain"
	Value string
	Want  string // what would be valid
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %q cannot be used; want %s", e.Where, e.Value, e.Want)
}

// Read returns the configuration, or all errors joined; each is an [*Error].
func Read(in Inputs) (Config, error) {
	r := &reader{in: in, env: map[string]string{}, out: Default()}
	for _, pair := range in.Environ {
		name, value, _ := strings.Cut(pair, "=")
		r.env[name] = value
	}
	r.proxyConfigs()
	r.metadataVariables()
	r.variables()
	r.flags()
	r.complete()
	r.check()
	return r.out, errors.Join(r.errs...)
}

// A reader collects the configuration, errors and notes.
type reader struct {
	in   Inputs
	env  map[string]string
	out  Config
	errs []error

	annotations map[string]string // of the pod
	metadata    map[string]string // proxyMetadata of all ProxyConfigs
}

func (r *reader) refuse(where, value, want string) {
	r.errs = append(r.errs, &Error{where, value, want})
}

func (r *reader) note(format string, args ...any) {
	r.out.Notes = append(r.out.Notes, fmt.Sprintf(format, args...))
}

// apply sets one setting with set. An empty value counts as not set.
func (r *reader) apply(where, value string, set func(*Config, string) error) {
	if value == "" {
		return
	}
	if err := set(&r.out, value); err != nil {
		r.refuse(where, value, err.Error())
	}
}

// file reads a file that may be absent.
func (r *reader) file(name string) ([]byte, bool) {
	if name == "" {
		return nil, false
	}
	data, err := r.in.ReadFile(name)
	if err == nil {
		return data, true
	}
	if !errors.Is(err, fs.ErrNotExist) {
		r.refuse(name, err.Error(), "a file that can be read")
	}
	return nil, false
}

// proxyConfigs reads the three sources of a ProxyConfig, the weakest first.
func (r *reader) proxyConfigs() {
	mesh := contract.MeshConfigFile
	if name, ok := r.in.Flags["meshConfig"]; ok {
		mesh = name
	}
	if data, ok := r.file(mesh); ok {
		r.meshConfig(mesh, data)
	}
	if text := r.env["PROXY_CONFIG"]; text != "" {
		r.proxyConfig("variable PROXY_CONFIG", []byte(text))
	}
	if name := r.env["OUTRIDER_ANNOTATIONS"]; name != "" {
		r.out.Annotations = name
	}
	if data, ok := r.file(r.out.Annotations); ok {
		annotations, err := Annotations(data)
		if err != nil {
			r.refuse(r.out.Annotations, err.Error(), "what the downward API writes: key=\"value\", one a line")
		}
		r.annotations = annotations
		if text := annotations[contract.ProxyConfig]; text != "" {
			r.proxyConfig("annotation "+contract.ProxyConfig, []byte(text))
		}
	}
	labels := path.Join(path.Dir(r.out.Annotations), "labels")
	if data, ok := r.file(labels); ok {
		var err error
		if r.out.Pod.Labels, err = Annotations(data); err != nil {
			r.refuse(labels, err.Error(), "what the downward API writes: key=\"value\", one a line")
		}
	}
}

func (e Envoy) threads() int {
	switch e.Concurrency {
	case 0:
		// As in Istio, the CPU limit counts only if no number is set.
		return cmp.Or(e.CPUs, 2)
	case allCores:
		return min(runtime.NumCPU(), mostThreads)
	}
	return e.Concurrency
}

// complete fills in settings that follow from others.
func (r *reader) complete() {
	c := &r.out
	if len(c.Pod.Addresses) == 0 && r.in.Addresses != nil {
		found, err := r.in.Addresses()
		if err != nil {
			r.refuse("addresses of this machine", err.Error(), "an address, or INSTANCE_IP")
		}
		c.Pod.Addresses = found
	}
	c.Envoy.Concurrency = c.Envoy.threads()
	if c.Stop.Grace < contract.LeastGrace {
		r.note("the grace period is %s; the kubelet gives %s at least", c.Stop.Grace, contract.LeastGrace)
		c.Stop.Grace = contract.LeastGrace
	}
	if c.Pod.Domain == "" {
		c.Pod.Domain = c.Pod.Namespace + ".svc.cluster.local"
	}
	if c.ControlPlane.CA == "" {
		c.ControlPlane.CA = c.ControlPlane.Address
	}
	if c.Pod.Metadata == nil {
		c.Pod.Metadata = map[string]any{}
	}
	if r.in.Version != "" {
		c.Pod.Metadata[contract.MetadataVersion] = r.in.Version
	}
	for name, value := range map[string]string{contract.MetadataNamespace: c.Pod.Namespace, contract.MetadataServiceAccount: c.Pod.ServiceAccount, "NAME": c.Pod.Name} {
		if _, set := c.Pod.Metadata[name]; !set {
			c.Pod.Metadata[name] = value
		}
	}
}
