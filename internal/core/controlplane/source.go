package controlplane

import (
	"context"
	"errors"

	"outrider.dev/internal/core/controlplane/files"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/pod/inject"
)

// A source publishes a mesh, and the problems of the objects from which it is built.
type source interface {
	Current() (*mesh.Mesh, <-chan struct{})
	Problems() ([]string, <-chan struct{})
	Synced() <-chan struct{} // closed once the mesh is complete; before that it must not be served
}

// A namespaces function returns a namespace in the form that the webhook needs; false: it is unknown.
type namespaces = func(name string) (inject.Namespace, bool)

// openSource opens the folder if there is one; otherwise it watches the cluster. Without a cluster the folder
// also declares the namespaces.
func openSource(ctx context.Context, o Options, c *cluster) (source, namespaces, error) {
	switch {
	case o.Folder == "" && c == nil:
		return nil, nil, errors.New("a control plane needs a folder of manifests, or a cluster")
	case o.Folder == "":
		return o.Cluster.Source(ctx, o.Mesh, o.SkipKinds...), c.namespace, nil
	}
	s, err := files.Watch(ctx, o.Folder, files.Options{Config: o.Mesh, Log: o.Log})
	if err != nil {
		return nil, nil, err
	}
	if c != nil {
		return s, c.namespace, nil
	}
	return s, func(name string) (inject.Namespace, bool) {
		ns, ok := s.Namespace(name)
		return inject.Namespace{Name: name, Labels: ns.Labels, Annotations: ns.Annotations}, ok
	}, nil
}
