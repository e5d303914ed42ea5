package containerd

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Ready returns nil if the runtime accepts CRI requests, otherwise an error. After its start the runtime accepts
// requests of other clients first and then recovers the running containers. A kubelet that starts earlier exits.
func Ready(ctx context.Context, socket string) error {
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = cri.NewRuntimeServiceClient(conn).Version(ctx, &cri.VersionRequest{})
	return err
}

// A label identifies the container or sandbox to which an ID of the runtime belongs.
type label struct {
	container string // empty for a sandbox
	uid       string // uid of the pod
}

// Labels that the kubelet sets on containers. Source: kubernetes v1.34.4
// pkg/kubelet/types/labels.go.
const (
	containerLabel = "io.kubernetes.container.name"
	podLabel       = "io.kubernetes.pod.uid"
)

// lookUp returns the label of an id; false if the runtime does not know the id (yet).
func lookUp(ctx context.Context, runtime cri.RuntimeServiceClient, id string) (label, bool) {
	containers, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
	if err != nil {
		return label{}, false
	}
	for _, c := range containers.Containers {
		return label{c.Labels[containerLabel], c.Labels[podLabel]}, true
	}
	sandboxes, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: id}})
	if err != nil {
		return label{}, false
	}
	for _, s := range sandboxes.Items {
		return label{uid: s.Labels[podLabel]}, true
	}
	return label{}, false
}
