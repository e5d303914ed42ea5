package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/kube"
)

// clusterFlags are the flags that determine whether a cluster is used, and how to connect to it.
type clusterFlags struct{ mode, kubeconfig string }

// connect returns the client of the cluster; nil if no cluster is used. If needed is true, it returns an
// error instead of nil. In mode auto a kubeconfig that merely exists on the machine is ignored, because
// outriderd writes to the cluster.
func (c clusterFlags) connect(log *slog.Logger, needed bool) (*kube.Cluster, error) {
	switch c.mode {
	case "on":
	case "auto":
		if c.kubeconfig == "" && !inPod() && !needed {
			log.Info("no cluster: service account tokens of Kubernetes are not accepted; --kubernetes=on uses kubectl's cluster")
			return nil, nil
		}
	case "off":
		if needed {
			return nil, &cli.UsageError{Err: errors.New("--source=kubernetes and --kubernetes=off contradict each other")}
		}
		if c.kubeconfig != "" {
			return nil, &cli.UsageError{Err: fmt.Errorf("--kubernetes=off and --kubeconfig=%s contradict each other", c.kubeconfig)}
		}
		return nil, nil
	default:
		return nil, &cli.UsageError{Err: fmt.Errorf("--kubernetes=%q: one of auto, on, off", c.mode)}
	}
	kube.LogClientGo(log)
	cluster, err := kube.Connect(kube.Options{Kubeconfig: c.kubeconfig, InPod: inPod(), UserAgent: "outriderd/" + cli.Version(), Log: log})
	if err != nil {
		return nil, &cli.UsageError{Err: err, Hint: "--kubeconfig names a file in kubectl's format; --source files:DIR --kubernetes=off needs no cluster"}
	}
	return cluster, nil
}

// inPod reports whether this process is in a pod that has a service account.
func inPod() bool {
	_, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token")
	return err == nil && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}
