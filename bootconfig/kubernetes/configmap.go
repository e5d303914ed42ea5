// Package kubernetes fetches documents from ConfigMaps through the Kubernetes API, for package bootconfig. The
// program needs permission to get and watch the ConfigMap.
//
// A mounted ConfigMap needs neither a client nor permissions: see bootconfig.NewFile and NewFolder. The kubelet
// updates a mount within a minute or two, while a watch reports a change at once. The module is versioned as
// package bootconfig describes.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"outrider.dev/bootconfig"
)

// A ConfigMap is a provider that fetches the value of one key of a ConfigMap. Create it with [NewConfigMap].
type ConfigMap struct {
	client               typed.ConfigMapInterface
	namespace, name, key string
}

// NewConfigMap returns a provider for one key of a ConfigMap, which need not exist yet.
func NewConfigMap(client kubernetes.Interface, namespace, name, key string) (*ConfigMap, error) {
	if client == nil {
		return nil, errors.New("the provider of a ConfigMap has no client")
	}
	if namespace == "" || name == "" || key == "" {
		return nil, fmt.Errorf("namespace %q, name %q and key %q of a ConfigMap: none must be empty", namespace, name, key)
	}
	return &ConfigMap{client.CoreV1().ConfigMaps(namespace), namespace, name, key}, nil
}

// String returns "configmap:NAMESPACE/NAME/KEY".
func (c *ConfigMap) String() string {
	return fmt.Sprintf("configmap:%s/%s/%s", c.namespace, c.name, c.key)
}

// Fetch implements [bootconfig.Provider]. The version is the ConfigMap's resourceVersion. A long
// poll is a watch.
func (c *ConfigMap) Fetch(ctx context.Context, r bootconfig.Request) (bootconfig.Document, error) {
	if r.Version != "" && r.Wait > 0 {
		d, err := c.watch(ctx, r)
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return d, err
		}
		// The API server no longer knows the version and cannot watch from there, so get the current document.
	}
	object, err := c.client.Get(ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return bootconfig.Document{}, retryAfter(err)
	}
	return c.document(object, r)
}

func (c *ConfigMap) watch(ctx context.Context, r bootconfig.Request) (bootconfig.Document, error) {
	seconds := int64(r.Wait.Seconds())
	ctx, cancel := context.WithTimeout(ctx, r.Wait+time.Second) // in case the server does not end the watch after TimeoutSeconds
	defer cancel()
	w, err := c.client.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String(),
		ResourceVersion: r.Version,
		TimeoutSeconds:  &seconds,
	})
	if err != nil {
		return bootconfig.Document{}, retryAfter(err)
	}
	defer w.Stop()
	over := time.NewTimer(r.Wait)
	defer over.Stop()
	for {
		select {
		case <-over.C:
			return bootconfig.Document{}, bootconfig.ErrUnchanged
		case <-ctx.Done():
			return bootconfig.Document{}, ctx.Err()
		case event, ok := <-w.ResultChan():
			if !ok { // the watch timed out
				return bootconfig.Document{}, bootconfig.ErrUnchanged
			}
			switch event.Type {
			case watch.Added, watch.Modified:
				if object, ok := event.Object.(*corev1.ConfigMap); ok && object.Name == c.name {
					return c.document(object, r)
				}
			case watch.Deleted:
				return bootconfig.Document{}, errors.New("the ConfigMap was deleted")
			case watch.Error:
				return bootconfig.Document{}, apierrors.FromObject(event.Object)
			}
		}
	}
}

func (c *ConfigMap) document(object *corev1.ConfigMap, r bootconfig.Request) (bootconfig.Document, error) {
	if object.ResourceVersion != "" && object.ResourceVersion == r.Version {
		return bootconfig.Document{}, bootconfig.ErrUnchanged
	}
	if data, ok := object.BinaryData[c.key]; ok {
		return bootconfig.Document{Version: object.ResourceVersion, Data: data}, nil
	}
	data, ok := object.Data[c.key]
	if !ok {
		return bootconfig.Document{}, fmt.Errorf("the ConfigMap has no key %q", c.key)
	}
	return bootconfig.Document{Version: object.ResourceVersion, Data: []byte(data)}, nil
}

// retryAfter makes a bootconfig.RetryAfterError of an error in which the API server says when to call again.
func retryAfter(err error) error {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return &bootconfig.RetryAfterError{After: time.Duration(seconds) * time.Second, Err: err}
	}
	return err
}
