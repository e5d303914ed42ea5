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
	// Kubeconfig is the path of a kubeconfig file. Default: the pod's service account if InPod is set,
	// otherwise the file that kubectl uses: $KUBECONFIG, then ~/.kube/config.
	Kubeconfig string
	InPod      bool         // this process is in a pod that has a service account
	UserAgent  string       // default: client-go's
	Log        *slog.Logger // default: none
}

// A Cluster is a client of a cluster's API server.
type Cluster struct {
	server   string
	core     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	log      *slog.Logger
	trouble  troubles
}

// Using returns a cluster that has only the given client, for built-in kinds such as Secrets. It logs
// nothing.
func Using(core kubernetes.Interface) *Cluster {
	log := slog.New(slog.DiscardHandler)
	return &Cluster{core: core, log: log, trouble: troubles{log: log}}
}

// LogClientGo sets the logger of client-go. Client-go has only one logger for the whole process, and reads it
// without a lock; so call LogClientGo once, before the first [Connect].
func LogClientGo(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(withoutElections{log.With("by", "client-go").Handler()}))
}

// Connect creates the client of a cluster. It sends no request, because the API server may be
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
	// There is no client-side limit, because the API server limits each client (priority and fairness).
	// client-go's default of 5 requests per second would delay the first certificates for the pods of a
	// Deployment.
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

// withoutElections drops the log records of client-go's leader election, because it logs as an error that
// another replica holds the Lease. [notedLock] records refusals by the API server.
type withoutElections struct{ slog.Handler }

// Handle passes on all records except those of the election.
func (h withoutElections) Handle(ctx context.Context, r slog.Record) error {
	for _, of := range []string{" lock", "lease", "leader election"} {
		if strings.Contains(r.Message, of) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// Server returns the API server's address.
func (c *Cluster) Server() string { return c.server }

// Core returns the client of the built-in kinds.
func (c *Cluster) Core() kubernetes.Interface { return c.core }

// Note records the result of an operation. Until it succeeds, [Cluster.Trouble] lists it.
func (c *Cluster) Note(tried string, err error) {
	if err != nil {
		err = explain(tried, err)
	}
	c.trouble.note(tried, err)
}

// explain adds the failed operation to an error and, if the API server forbids it, what would help. The
// wrapped error already names the missing permission.
func explain(tried string, err error) error {
	if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		return fmt.Errorf("%s: %w; the chart has the roles", tried, err)
	}
	return fmt.Errorf("%s: %w", tried, err)
}
