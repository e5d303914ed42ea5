package kube

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
)

// A ServingSecret is a [ca.Store] for a mesh in which another authority signs the certificates. It consists
// of a Secret with the control plane's own certificate, which cert-manager writes, and a ConfigMap with the
// roots that the authority publishes. outriderd writes neither.
type ServingSecret struct {
	secret *AuthoritySecret
	roots  string // name of the ConfigMap; empty: none
}

// servingRoots is the key of the Secret under which the roots are stored.
const servingRoots = "ca.crt"

// ServingSecret returns the store in a Secret and a ConfigMap; roots may be empty. It sends no request.
func (c *Cluster) ServingSecret(namespace, secret, roots string) *ServingSecret {
	return &ServingSecret{c.AuthoritySecret(namespace, secret), roots}
}

func (s *ServingSecret) String() string { return s.secret.String() }

func (s *ServingSecret) configMap() string {
	return "the ConfigMap " + s.secret.namespace + "/" + s.roots
}

// Read returns the Secret's data, with the roots from both objects: when the authority replaces its root, one
// of them is updated before the other.
func (s *ServingSecret) Read(ctx context.Context) (ca.Contents, error) {
	out, err := s.secret.Read(ctx)
	if out.Own = false; err != nil || s.roots == "" {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := s.secret.cluster.core.CoreV1().ConfigMaps(s.secret.namespace).Get(ctx, s.roots, metav1.GetOptions{})
	if err != nil {
		return ca.Contents{}, explain("reading "+s.configMap(), err)
	}
	published := m.Data[contract.RootKey]
	if published == "" {
		return ca.Contents{}, fmt.Errorf("%s has no %s with the roots of the authority", s.configMap(), contract.RootKey)
	}
	out.Files = maps.Clone(out.Files)
	if out.Files == nil {
		return out, nil // without files, the caller reports that the Secret is missing
	}
	out.Files[servingRoots] = bytes.TrimSpace(slices.Concat([]byte(published), []byte("\n"), out.Files[servingRoots]))
	out.Version += "/" + m.ResourceVersion
	return out, nil
}

// Update fails, because the authority owns both objects.
func (s *ServingSecret) Update(context.Context, ca.Contents) error {
	return fmt.Errorf("%s is not written by outriderd", s)
}

// Watch watches the Secret and the ConfigMap.
func (s *ServingSecret) Watch(changed func()) (stop func()) {
	ofSecret := s.secret.Watch(changed)
	if s.roots == "" {
		return ofSecret
	}
	cluster := s.secret.cluster
	ofRoots := cluster.watchOne(feedOf(s.configMap(), cluster.core.CoreV1().ConfigMaps(s.secret.namespace), one(s.roots)), changed)
	return func() { ofSecret(); ofRoots() }
}

// watchOne calls the function changed after each change in a feed. It also does so when the feed is read for
// the first time, and when the API server answers again.
func (c *Cluster) watchOne(f feed, changed func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	to := newStore(func(string, metav1.Object) string { return "" })
	to.changed = func(types.NamespacedName, string, string, bool) { changed() }
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.follow(ctx, f, to, nil)
	}()
	return func() { cancel(); <-done }
}
