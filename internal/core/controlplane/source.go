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
	Synced() <-chan struct{} // closed once the mesh is complete; it is not served earlier
}

// openSource opens the folder, or watches the cluster. Without a cluster the folder also declares the
// namespaces.
func (p *plane) openSource(ctx context.Context) error {
	o := p.o
	switch {
	case o.Folder == "" && o.Cluster == nil:
		return errors.New("a control plane needs a folder of manifests, or a cluster")
	case o.Folder == "":
		p.mesh = o.Cluster.Source(ctx, o.Mesh, o.SkipKinds...)
		p.namespace = p.cluster.namespace
		return nil
	}
	s, err := files.Watch(ctx, o.Folder, files.Options{Config: o.Mesh, Log: o.Log})
	if err != nil {
		return err
	}
	p.mesh = s
	p.namespace = func(name string) (inject.Namespace, bool) {
		ns, ok := s.Namespace(name)
		return inject.Namespace{Name: name, Labels: ns.Labels, Annotations: ns.Annotations}, ok
	}
	if p.cluster != nil {
		p.namespace = p.cluster.namespace
	}
	return nil
}
