package main

import (
	"errors"
	"fmt"
	"log/slog"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/controlplane/kube"
)

// clusterFlags say whether there is a cluster, and how it is reached.
type clusterFlags struct{ mode, kubeconfig string }

// connect returns nil without a cluster, unless one is needed. Where none is named, a
// kubeconfig that happens to be on the machine does not make one: it may lead anywhere,
// and things are written there.
func (c clusterFlags) connect(log *slog.Logger, needed bool) (*kube.Cluster, error) {
	switch c.mode {
	case "on":
	case "auto":
		if c.kubeconfig == "" && !kube.InPod() && !needed {
			log.Info("without a cluster: no token of Kubernetes is taken; --kubernetes=on takes kubectl's cluster")
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
	cluster, err := kube.Connect(kube.Options{Kubeconfig: c.kubeconfig, UserAgent: "outriderd/" + cli.Version(), Log: log})
	if err != nil {
		return nil, &cli.UsageError{Err: err, Hint: "--kubeconfig names a file as kubectl's; --source files:DIR --kubernetes=off does without a cluster"}
	}
	return cluster, nil
}
