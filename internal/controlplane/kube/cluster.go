package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Options of a cluster. The zero value of a field means its default.
type Options struct {
	// Kubeconfig is a file. Default: in a pod its service account; elsewhere what kubectl
	// takes, which is $KUBECONFIG, then ~/.kube/config.
	Kubeconfig string
	UserAgent  string       // default: client-go's
	Log        *slog.Logger // default: none
}

// A Cluster is one, by its API server.
type Cluster struct {
	server   string
	core     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	log      *slog.Logger
	trouble  troubles
}

// accountToken is where the kubelet puts what a pod shows to the API server.
const accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// InPod says whether this process is in a pod that may speak to its API server.
func InPod() bool {
	_, err := os.Stat(accountToken)
	return err == nil && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// ErrNone says that nothing tells which cluster is meant.
var ErrNone = errors.New("no cluster: this is no pod with a service account, and there is no kubeconfig")

// Connect reads and checks how a cluster is reached. It does not ask it: an API server may
// be away for a while.
func Connect(o Options) (*Cluster, error) {
	config, err := configure(o)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	klog.SetSlogLogger(o.Log.With("by", "client-go")) // it knows but one for the process
	config.UserAgent = o.UserAgent
	// Without limits of its own: the API server has them for each client (priority and
	// fairness), and client-go's default of 5 requests a second would hold up the first
	// certificates of a deployment's pods.
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
	if o.Kubeconfig == "" && InPod() {
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
		return nil, ErrNone
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// Server is the API server's address.
func (c *Cluster) Server() string { return c.server }

// explain says what was tried, and what to do where the API server forbids it; its own
// words name the permission.
func explain(tried string, err error) error {
	if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		return fmt.Errorf("%s: %w; deploy/outriderd.yaml has the roles", tried, err)
	}
	return fmt.Errorf("%s: %w", tried, err)
}
