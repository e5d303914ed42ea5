package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Patch sets the CA bundle of every webhook in a configuration, and reports whether that changed anything. So
// only the first of several replicas writes the configuration.
func Patch(c *admission.MutatingWebhookConfiguration, bundle []byte) (changed bool) {
	for i := range c.Webhooks {
		if client := &c.Webhooks[i].ClientConfig; !bytes.Equal(client.CABundle, bundle) {
			client.CABundle = bytes.Clone(bundle)
			changed = true
		}
	}
	return changed
}

// Configurations reads and writes MutatingWebhookConfigurations. Get returns an error for which
// apierrors.IsNotFound is true if there is none of that name. Update fails if the configuration has changed
// since Get, as an update with a resourceVersion does.
type Configurations interface {
	Get(ctx context.Context, name string) (*admission.MutatingWebhookConfiguration, error)
	Update(ctx context.Context, c *admission.MutatingWebhookConfiguration) error
}

// Roots provides the certificates for the bundle; a ca.Authority implements it.
type Roots interface {
	RootsPEM() []byte
	Changed() <-chan struct{}
}

// A Keeper writes the current roots into the CA bundle of a configuration.
type Keeper struct {
	Configurations Configurations
	Name           string
	Roots          Roots
	Log            *slog.Logger

	// Changed returns a channel that is closed when the configuration is written. The Keeper calls it before
	// it reads the configuration. It may be nil.
	Changed func() <-chan struct{}

	// Look is the interval between reads of the configuration when no change of it was noticed; default 1m.
	Look time.Duration
}

const (
	retryAfter   = time.Second           // pause after a failure
	retryReplica = 50 * time.Millisecond // after another replica's update, which probably wrote the same
)

// Run writes the bundle at the start, when the roots change, and when the configuration contains a different
// bundle, until ctx ends. It logs failures and tries again.
//
// A new root must be in the bundle before it signs certificates, because the API server rejects all pods
// while it cannot verify the webhook's certificate.
func (k *Keeper) Run(ctx context.Context) error {
	var written <-chan struct{} // nil is never closed
	var missing bool
	for {
		changed := k.Roots.Changed()
		if k.Changed != nil {
			written = k.Changed()
		}
		wait := cmp.Or(k.Look, time.Minute)
		err := k.once(ctx)
		switch {
		case err == nil:
			missing = false
		case apierrors.IsNotFound(err): // the configuration was not applied yet, or was removed
			if !missing {
				k.Log.Info("there is no configuration of the webhook; once there is, it gets its certificates", "configuration", k.Name)
			}
			missing = true
		case apierrors.IsConflict(err):
			k.Log.Debug("the configuration of the webhook was changed meanwhile", "configuration", k.Name)
			wait = retryReplica
		case ctx.Err() == nil:
			k.Log.Warn("the webhook's certificates are not current", "configuration", k.Name, "error", err)
			wait = retryAfter
		}
		select {
		case <-changed:
		case <-written:
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (k *Keeper) once(ctx context.Context) error {
	bundle := k.Roots.RootsPEM()
	if len(bundle) == 0 {
		return errors.New("there are no roots: an empty bundle would mean those of the system")
	}
	c, err := k.Configurations.Get(ctx, k.Name)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if !Patch(c, bundle) {
		return nil
	}
	if err := k.Configurations.Update(ctx, c); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	k.Log.Info("the webhook's certificates are current", "configuration", k.Name, "webhooks", len(c.Webhooks))
	return nil
}
