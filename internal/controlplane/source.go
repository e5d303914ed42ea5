package controlplane

import (
	"context"
	"errors"
	"fmt"

	"outrider.dev/internal/controlplane/files"
	"outrider.dev/internal/controlplane/kube"
	"outrider.dev/internal/mesh"
)

// A source has the mesh of this moment, and what is wrong with what it is made of.
type source interface {
	Current() (*mesh.Mesh, <-chan struct{})
	Problems() ([]string, <-chan struct{})
	Synced() <-chan struct{} // closed once the mesh is whole: until then it is not told
}

// told is a source whose problems are values, as sentences.
type told[P fmt.Stringer] struct {
	from interface {
		Current() (*mesh.Mesh, <-chan struct{})
		Problems() ([]P, <-chan struct{})
	}
	synced <-chan struct{}
}

func (t told[P]) Current() (*mesh.Mesh, <-chan struct{}) { return t.from.Current() }

func (t told[P]) Problems() ([]string, <-chan struct{}) {
	problems, changed := t.from.Problems()
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return lines, changed
}

func (t told[P]) Synced() <-chan struct{} { return t.synced }

// openSource opens the folder, or follows the cluster.
func (o Options) openSource(ctx context.Context) (source, error) {
	switch {
	case o.Folder == "" && o.Cluster == nil:
		return nil, errors.New("a control plane needs a folder of manifests, or a cluster")
	case o.Folder == "":
		s := o.Cluster.Source(ctx, kube.SourceOptions{Config: o.Mesh})
		return told[kube.Problem]{s, s.Synced()}, nil
	}
	s, err := files.Watch(ctx, o.Folder, files.Options{Config: o.Mesh, Log: o.Log})
	if err != nil {
		return nil, err
	}
	read := make(chan struct{})
	close(read) // Watch has read all of it
	return told[files.Problem]{s, read}, nil
}
