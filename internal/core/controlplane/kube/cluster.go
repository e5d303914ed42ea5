package kube

import (
	"context"
	"errors"
	"fmt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"log/slog"
	"strings"
)

// Options of a cluster. The zero value of a field means its default.
type Options struct {
	// Kubeconfig is a file. Default: the pod's service account if InPod, else what kubectl
	// uses, which is $KUBECONFIG, then ~/.kube/config.
	Kubeconfig string
	InPod      bool         // this process is in a pod that has a service account
	UserAgent  string       // default: client-go's
	Log        *slog.Logger // default: none
}

// A Cluster is a client of its API server.
type Cluster struct {
	server   string
	core     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	log      *slog.Logger
	trouble  troubles
}

// Using returns a cluster of which only the built-in kinds are used, such as its Secrets.
func Using(core kubernetes.Interface) *Cluster {
	log := slog.New(slog.DiscardHandler)
	return &Cluster{core: core, log: log, trouble: troubles{log: log}}
}

// LogClientGo sets where client-go logs. It has one logger per process and reads it without a
// lock, so this is called once, before the first [Connect].
func LogClientGo(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(withoutElections{log.With("by", "client-go").Handler()}))
}

// Connect makes the client of a cluster. It sends no request: an API server may be
// unavailable for a while.
func Connect(o Options) (*Cluster, error) {
	config, err := configure(o)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	config.UserAgent = o.UserAgent
	// No client-side limit: the API server limits each client (priority and fairness), and
	// client-go's default of 5 requests a second would delay the first certificates of a
	// deployment's pods.
	config.QPS = -1
	c := &Cluster{server: config.Host, log: o.Log}
	c.trouble.log = o.Log
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("the cluster's credentials: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, http); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), http); err != nil {
		return nil, err
	}
	compact := rest.CopyConfig(config)
	compact.ContentType = "application/vnd.kubernetes.protobuf"
	compact.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	c.core, err = kubernetes.NewForConfigAndClient(compact, http)
	return c, err
}

func configure(o Options) (*rest.Config, error) {
	if o.Kubeconfig == "" && o.InPod {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("the pod's service account: %w", err)
		}
		return config, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && o.Kubeconfig == "":
		return nil, errors.New("no cluster: this is no pod with a service account, and there is no kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// withoutElections is a handler without what client-go's election of a leader logs: that another
// replica was first is an error there. What the API server refuses is noted: see [notedLock].
type withoutElections struct{ slog.Handler }

// Handle drops these records.
func (h withoutElections) Handle(ctx context.Context, r slog.Record) error {
	for _, of := range []string{" lock", "lease", "leader election"} {
		if strings.Contains(r.Message, of) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// Server is the API server's address.
func (c *Cluster) Server() string { return c.server }

// Core is the client of the built-in kinds.
func (c *Cluster) Core() kubernetes.Interface { return c.core }

// Note records the result of an operation, which is among [Cluster.Trouble] while it fails.
func (c *Cluster) Note(tried string, err error) {
	if err != nil {
		err = explain(tried, err)
	}
	c.trouble.note(tried, err)
}

// explain adds what was tried, and what helps if the API server forbids it; its own error
// names the permission.
func explain(tried string, err error) error {
	if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		return fmt.Errorf("%s: %w; the chart has the roles", tried, err)
	}
	return fmt.Errorf("%s: %w", tried, err)
}
