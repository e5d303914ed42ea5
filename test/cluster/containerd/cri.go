package containerd

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// A runtime asks containerd what a container or sandbox is called. It speaks the
// three messages that it needs of the CRI (cri-api v0.34.4 runtime/v1/api.proto) by
// hand: their Go types are in a module that nothing else here wants.
type runtime struct{ conn *grpc.ClientConn }

func dial(socket string) (*runtime, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		return nil, err
	}
	return &runtime{conn}, nil
}

// A label is what a container or sandbox is called.
type label struct {
	container string // empty: a sandbox
	uid       string // of the pod
}

// Labels of the kubelet's containers. Source: kubernetes v1.34.4
// pkg/kubelet/types/labels.go.
const (
	containerLabel = "io.kubernetes.container.name"
	podLabel       = "io.kubernetes.pod.uid"
)

// lookUp returns the label of an id; false if the runtime does not know it (yet).
func (r *runtime) lookUp(ctx context.Context, id string) (label, bool) {
	for _, q := range []struct {
		method string
		labels protowire.Number // field of an item
	}{{"ListContainers", 8}, {"ListPodSandbox", 5}} {
		// {filter: {id: ID}}
		filter := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
		request := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), filter)
		var answer []byte
		if err := r.conn.Invoke(ctx, "/runtime.v1.RuntimeService/"+q.method, &request, &answer); err != nil {
			return label{}, false
		}
		for _, item := range fields(answer, 1) {
			var l label
			for _, pair := range fields(item, q.labels) {
				key, value := first(pair, 1), first(pair, 2)
				switch key {
				case containerLabel:
					l.container = value
				case podLabel:
					l.uid = value
				}
			}
			return l, true
		}
	}
	return label{}, false
}

// fields returns the values of a repeated bytes field.
func fields(message []byte, want protowire.Number) (out [][]byte) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return out
		}
		message = message[size:]
		if n == want && kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(message)
			if size < 0 {
				return out
			}
			out, message = append(out, value), message[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return out
		}
		message = message[size:]
	}
	return out
}

func first(message []byte, want protowire.Number) string {
	for _, v := range fields(message, want) {
		return string(v)
	}
	return ""
}

// raw is a codec for messages that are encoded already.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not encoded", v)
	}
	return *b, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T cannot hold a message", v)
	}
	*b = append([]byte(nil), data...)
	return nil
}
