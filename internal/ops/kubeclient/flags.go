// Package kubeclient connects commands to a cluster. It provides kubectl's flags, clients for the cluster that these
// flags choose, port forwarding from pods to this machine, and functions that wait until objects are in the state
// that a command needs. A wait fails immediately if a permission is missing.
package kubeclient

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"outrider.dev/internal/base/cli"
)

// Flags are the flags of kubectl that choose the cluster, the user and the namespace. They implement
// [genericclioptions.RESTClientGetter], which Helm needs.
type Flags struct {
	*genericclioptions.ConfigFlags

	discovered func() (discovery.CachedDiscoveryInterface, error)
	mapper     func() (meta.RESTMapper, error)
}

// NewFlags returns the flags with their defaults. If namespace is empty, the default is the context's
// namespace.
func NewFlags(namespace string) *Flags {
	all := genericclioptions.NewConfigFlags(true)
	all.Namespace = &namespace
	f := &Flags{ConfigFlags: all}
	// The other flags of kubectl are left out, because a kubeconfig has the same settings.
	all.CacheDir, all.ClusterName, all.AuthInfoName, all.APIServer, all.TLSServerName = nil, nil, nil, nil, nil
	all.Insecure, all.CertFile, all.KeyFile, all.CAFile, all.BearerToken = nil, nil, nil, nil, nil
	all.Username, all.Password, all.Timeout, all.DisableCompression, all.ImpersonateUID = nil, nil, nil, nil, nil
	all.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.QPS = -1 // no client-side limit: the API server has its own (priority and fairness)
		c.WarningHandler = rest.NoWarnings{}
		return c
	}
	// The kinds of the cluster are cached in memory. kubectl caches them in files, which may be six hours old;
	// meanwhile install may have added kinds, or another cluster may have the same address.
	f.discovered = sync.OnceValues(func() (discovery.CachedDiscoveryInterface, error) {
		config, err := all.ToRESTConfig()
		if err != nil {
			return nil, err
		}
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return nil, err
		}
		return memory.NewMemCacheClient(client), nil
	})
	f.mapper = sync.OnceValues(func() (meta.RESTMapper, error) {
		client, err := f.discovered()
		if err != nil {
			return nil, err
		}
		return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client, nil), nil
	})
	return f
}

// Add adds the flags to fs; usage is the help text of --namespace.
func (f *Flags) Add(fs *pflag.FlagSet, usage string) {
	f.AddFlags(fs)
	fs.Lookup("namespace").Usage = usage
	for name, usage := range map[string]string{ // any order: each flag is looked up by its name
		"kubeconfig": "file with clusters and users; default: $KUBECONFIG, then ~/.kube/config",
		"context":    "the kubeconfig's context to use; default: its current one",
		"as":         "user to act as",
		"as-group":   "group to act as; may be repeated",
	} {
		fs.Lookup(name).Usage = usage
	}
}

// Kubectl returns the flags that are set, except --namespace, as arguments for a kubectl process.
func (f *Flags) Kubectl() (args []string) {
	for _, flag := range []struct {
		name  string
		value *string
	}{{"kubeconfig", f.KubeConfig}, {"context", f.Context}, {"as", f.Impersonate}} {
		if *flag.value != "" {
			args = append(args, "--"+flag.name+"="+*flag.value)
		}
	}
	for _, group := range *f.ImpersonateGroup {
		args = append(args, "--as-group="+group)
	}
	return args
}

// ToDiscoveryClient returns a client that caches in memory and not, like the default one, in files.
func (f *Flags) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return f.discovered()
}

// ToRESTMapper returns a mapper that uses the client of [Flags.ToDiscoveryClient].
func (f *Flags) ToRESTMapper() (meta.RESTMapper, error) { return f.mapper() }

// unusable returns a usage error about flags or a kubeconfig that choose no cluster.
func unusable(err error) error {
	return &cli.UsageError{Err: fmt.Errorf("kubeconfig: %w", err), Hint: "--kubeconfig and --context choose a cluster; kubectl config get-contexts lists them"}
}

// A Client has everything that an operation on a cluster needs.
type Client struct {
	Flags     *Flags // the flags that chose the cluster
	Config    *rest.Config
	Core      kubernetes.Interface
	Dynamic   dynamic.Interface
	Mapper    meta.RESTMapper
	Namespace string        // the namespace that the flags choose
	Progress  *cli.Progress // shows the progress of the operation
}

// Client returns the clients of the cluster that the flags choose; progress shows the progress of operations. It
// sends no request. If the flags choose no cluster, it returns a usage error.
func (f *Flags) Client(progress *cli.Progress) (*Client, error) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go would log errors that it also returns
	config, err := f.ToRESTConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("it names no cluster, or there is none")
		}
		return nil, unusable(err)
	}
	// If a kubeconfig has no cluster, client-go would use localhost:8080.
	if raw, err := f.ToRawKubeConfigLoader().RawConfig(); err == nil && len(raw.Clusters) == 0 {
		if _, err := rest.InClusterConfig(); err != nil {
			return nil, unusable(errors.New("it names no cluster, or there is none"))
		}
	}
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, unusable(err)
	}
	c := &Client{Flags: f, Config: config, Namespace: namespace, Progress: progress}
	if c.Core, err = kubernetes.NewForConfig(config); err != nil {
		return nil, unusable(err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, unusable(err)
	}
	c.Mapper, err = f.ToRESTMapper()
	return c, err
}
