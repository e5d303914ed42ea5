package kube

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"outrider.dev/internal/base/latest"
)

// Times of an election: a Lease is valid for leaseValid, its holder tries to renew it for leaseRenew, and
// replicas wait for leaseRetry between two attempts.
const (
	leaseValid = 15 * time.Second
	leaseRenew = 10 * time.Second
	leaseRetry = 2 * time.Second
)

// Lead calls the function lead while this replica holds the Lease with this name, until ctx ends. Then it
// releases the Lease. If the Lease is lost, it ends the context of lead, and calls lead again when this
// replica holds the Lease again. Calls do not overlap.
func (c *Cluster) Lead(ctx context.Context, namespace, name string, lead func(context.Context)) error {
	host, err := os.Hostname()
	if err != nil {
		host = "outriderd"
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		Client:     c.core.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "-" + rand.Text()[:8]},
		Labels:     madeHere,
	}
	for ctx.Err() == nil {
		ended := make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &notedLock{lock, c, name}, LeaseDuration: leaseValid, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry, ReleaseOnCancel: true, Name: name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { defer close(ended); lead(ctx) },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return err
		}
		elector.Run(ctx)        // returns when the Lease is lost, or ctx ends
		latest.Wait(ctx, ended) // until lead has returned, so that calls do not overlap
	}
	return ctx.Err()
}

// A notedLock records refusals by the API server. If another replica was faster, that is not a failure.
type notedLock struct {
	resourcelock.Interface
	cluster *Cluster
	name    string
}

func (l *notedLock) note(err error) error {
	tried := "holding the Lease " + l.name
	switch {
	case err == nil || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err):
		l.cluster.Note(tried, nil)
	case !errors.Is(err, context.Canceled):
		l.cluster.Note(tried, err)
	}
	return err
}

// Get reads the Lease.
func (l *notedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	return r, raw, l.note(err)
}

// Create creates the Lease.
func (l *notedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(l.Interface.Create(ctx, r))
}

// Update takes, renews or releases the Lease.
func (l *notedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(l.Interface.Update(ctx, r))
}
