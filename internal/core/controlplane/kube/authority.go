package kube

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
)

// madeHere contains the labels of objects that outriderd creates, and may change and delete.
var madeHere = map[string]string{"app": "outriderd", contract.MadeByLabel: "outriderd"}

func isMadeHere(o metav1.Object) bool { return o.GetLabels()[contract.MadeByLabel] == "outriderd" }

// An AuthoritySecret is a [ca.Store] in a Secret, which all replicas share. The Secrets
// [contract.AuthoritySecret] and [contract.SeenRootsSecret] are created if they are missing. A Secret without
// our label was created by something else (Istio's cacerts, or one from cert-manager): it is only read.
type AuthoritySecret struct {
	cluster         *Cluster
	namespace, name string
}

// AuthoritySecret returns the store in a Secret. It sends no request.
func (c *Cluster) AuthoritySecret(namespace, name string) *AuthoritySecret {
	return &AuthoritySecret{c, namespace, name}
}

func (s *AuthoritySecret) String() string { return "the Secret " + s.namespace + "/" + s.name }

// Read returns the Secret's data. If the Secret does not exist, there are no files, which is no error.
func (s *AuthoritySecret) Read(ctx context.Context) (ca.Contents, error) {
	secret, err := s.get(ctx)
	if apierrors.IsNotFound(err) {
		return ca.Contents{Own: s.name == contract.AuthoritySecret || s.name == contract.SeenRootsSecret}, nil
	}
	if err != nil {
		return ca.Contents{}, explain("reading "+s.String(), err)
	}
	return ca.Contents{Files: secret.Data, Version: secret.ResourceVersion, Own: isMadeHere(secret)}, nil
}

func (s *AuthoritySecret) get(ctx context.Context) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.cluster.core.CoreV1().Secrets(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
}

// Update writes the Secret if its resourceVersion is still c.Version. If c.Version is empty, it creates the
// Secret.
func (s *AuthoritySecret) Update(ctx context.Context, c ca.Contents) error {
	if !c.Own {
		return fmt.Errorf("%s was not made by outriderd, which therefore does not write it", s)
	}
	if c.Version == "" {
		return s.written(s.create(ctx, c))
	}
	secret, err := s.get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return ca.ErrConflict
	case err != nil:
		return explain("reading "+s.String(), err)
	case secret.ResourceVersion != c.Version || !isMadeHere(secret):
		return ca.ErrConflict
	}
	secret.Data = maps.Clone(c.Files)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = s.cluster.core.CoreV1().Secrets(s.namespace).Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) { // the Secret was deleted after it was read
		return ca.ErrConflict
	}
	return s.written(err)
}

func (s *AuthoritySecret) create(ctx context.Context, c ca.Contents) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.cluster.core.CoreV1().Secrets(s.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: madeHere}, Data: c.Files,
	}, metav1.CreateOptions{FieldManager: fieldManager})
	return err
}

// written converts the error of a write request to one that [ca.Store] defines.
func (s *AuthoritySecret) written(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err):
		return ca.ErrConflict
	}
	return explain("writing "+s.String(), err)
}

// Watch calls the function changed after each change. It also does so when the Secret is read for the first
// time, and when the API server answers again.
func (s *AuthoritySecret) Watch(changed func()) (stop func()) {
	return s.cluster.watchOne(feedOf(s.String(), s.cluster.core.CoreV1().Secrets(s.namespace), one(s.name)), changed)
}
