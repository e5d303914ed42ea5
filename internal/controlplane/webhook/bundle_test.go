package webhook

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wanting is a cluster whose configuration may be missing.
type wanting struct {
	cluster
	missing bool
	reads   int
}

func (w *wanting) Get(ctx context.Context, name string) (*admission.MutatingWebhookConfiguration, error) {
	w.reads++
	if w.missing {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, name)
	}
	return w.cluster.Get(ctx, name)
}

// A missing configuration is logged once and read rarely; once it is there, it is written at
// once.
func TestAConfigurationThatIsNotThereYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored, err := Configuration(ConfigurationOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		c := &wanting{cluster: cluster{stored: *stored}, missing: true}
		written := make(chan struct{})
		r := &roots{pem: "one", changed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			(&Keeper{
				Configurations: c, Name: stored.Name, Roots: r, Log: slog.New(slog.NewTextHandler(&log, nil)), Look: 24 * time.Hour,
				Changed: func() <-chan struct{} { return written },
			}).Run(ctx)
		})
		time.Sleep(time.Hour)
		r.set("two")
		synctest.Wait()
		if c.reads != 2 || strings.Count(log.String(), "there is no configuration") != 1 || strings.Contains(log.String(), "WARN") {
			t.Errorf("%d reads, want 2; the log:\n%s", c.reads, log.String())
		}
		c.missing = false
		old := written
		written = make(chan struct{})
		close(old)
		synctest.Wait()
		if got := c.bundle(); got != "two" || c.writes != 1 {
			t.Errorf("bundle %q after %d writes, want two after 1", got, c.writes)
		}
		cancel()
		done.Wait()
	})
}
