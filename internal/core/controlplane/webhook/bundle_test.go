package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outrider.dev/test/buffer"
	"outrider.dev/test/roots"
)

// A cluster contains one configuration, and rejects an update that is based on an old version.
type cluster struct {
	mu      sync.Mutex
	stored  admission.MutatingWebhookConfiguration
	version int
	writes  int
	refuses int // number of updates that will still fail with a conflict
}

func (c *cluster) Get(context.Context, string) (*admission.MutatingWebhookConfiguration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.stored.DeepCopy()
	out.ResourceVersion = fmt.Sprint(c.version)
	return out, nil
}

func (c *cluster) Update(_ context.Context, in *admission.MutatingWebhookConfiguration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in.ResourceVersion != fmt.Sprint(c.version) || c.refuses > 0 {
		c.refuses--
		return apierrors.NewConflict(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, in.Name, errors.New("the object has been modified"))
	}
	c.stored, c.version, c.writes = *in.DeepCopy(), c.version+1, c.writes+1
	return nil
}

func (c *cluster) bundle() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.stored.Webhooks[len(c.stored.Webhooks)-1].ClientConfig.CABundle)
}

func TestReplicasKeepTheBundleCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored, err := Configuration(ConfigurationOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c, r := &cluster{stored: *stored, refuses: 1}, roots.New("one")
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		var log buffer.Buffer
		for range 3 {
			done.Go(func() {
				(&Keeper{Configurations: c, Name: stored.Name, Roots: r, Log: slog.New(slog.NewTextHandler(&log, nil))}).Run(ctx)
			})
		}
		want := func(bundle string, writes int, when string) {
			t.Helper()
			synctest.Wait()
			if got := c.bundle(); got != bundle || c.writes != writes {
				t.Errorf("%s: bundle %q after %d writes, want %q after %d", when, got, c.writes, bundle, writes)
			}
		}
		time.Sleep(2 * time.Second)
		want("one", 1, "three replicas start, and the first write meets another")
		if strings.Contains(log.String(), "WARN") { // conflicts are not logged as warnings
			t.Errorf("the log:\n%s", log.String())
		}
		r.Set("one two")
		time.Sleep(2 * time.Second)
		want("one two", 2, "the roots change")
		c.mu.Lock()
		Patch(&c.stored, nil)
		c.mu.Unlock()
		time.Sleep(time.Minute)
		want("one two", 3, "a configuration without a bundle is applied")
		r.Set("")
		time.Sleep(time.Minute)
		want("one two", 3, "there are no roots for a moment")
		cancel()
		done.Wait()
	})
}
