package controlplane

import (
	"context"
	"errors"
	"fmt"

	"outrider.dev/internal/controlplane/files"
	"outrider.dev/internal/controlplane/kube"
	"outrider.dev/internal/mesh"
)

// A source publishes a mesh, and the problems of the objects that it is made of.
type source interface {
	Current() (*mesh.Mesh, <-chan struct{})
	Problems() ([]string, <-chan struct{})
	Synced() <-chan struct{} // closed once the mesh is complete: before, it is not served
}

// described is a source with its problems as sentences.
type described[P fmt.Stringer] struct {
	from interface {
		Current() (*mesh.Mesh, <-chan struct{})
		Problems() ([]P, <-chan struct{})
	}
	synced <-chan struct{}
}

func (t described[P]) Current() (*mesh.Mesh, <-chan struct{}) { return t.from.Current() }

func (t described[P]) Problems() ([]string, <-chan struct{}) {
	problems, changed := t.from.Problems()
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return lines, changed
}

func (t described[P]) Synced() <-chan struct{} { return t.synced }

// openSource opens the folder, or follows the cluster.
func (o Options) openSource(ctx context.Context) (source, error) {
	switch {
	case o.Folder == "" && o.Cluster == nil:
		return nil, errors.New("a control plane needs a folder of manifests, or a cluster")
	case o.Folder == "":
		s := o.Cluster.Source(ctx, kube.SourceOptions{Config: o.Mesh})
		return described[kube.Problem]{s, s.Synced()}, nil
	}
	s, err := files.Watch(ctx, o.Folder, files.Options{Config: o.Mesh, Log: o.Log})
	if err != nil {
		return nil, err
	}
	read := make(chan struct{})
	close(read) // Watch has read all of it
	return described[files.Problem]{s, read}, nil
}
