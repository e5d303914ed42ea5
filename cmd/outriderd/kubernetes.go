package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/kube"
)

// clusterFlags say whether a cluster is used, and how to connect to it.
type clusterFlags struct{ mode, kubeconfig string }

// connect returns nil without a cluster, unless one is needed. A kubeconfig that is merely
// present on the machine is not used in mode auto: outriderd writes to the cluster.
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

// inPod returns whether this process is in a pod that has a service account.
func inPod() bool {
	_, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token")
	return err == nil && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}
