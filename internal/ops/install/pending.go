package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// recover returns the newest revision of the release, or nil if there is none. If a run was interrupted, it first
// completes the removal, or marks the release as failed so that Helm can upgrade it. The caller holds the lock, so no
// other outrider command works on the release.
func (o Options) recover(ctx context.Context, helm *action.Configuration, name string) (*release.Release, error) {
	r, err := last(helm, name)
	if err != nil || r == nil {
		return nil, err
	}
	switch {
	case r.Info.Status == release.StatusUninstalling:
		if err := o.uninstall(ctx, helm, r); err != nil {
			return nil, err
		}
		o.Progress.Step("release %s/%s: its removal was interrupted, and is complete now", o.Namespace, name)
		return nil, nil
	case r.Info.Status.IsPending():
		was := r.Info.Status
		r.SetStatus(release.StatusFailed, fmt.Sprintf("interrupted while it was %s", was))
		if err := helm.Releases.Update(r); err != nil {
			return nil, fmt.Errorf("recovering release %s, which is %s: %w", name, was, err)
		}
		o.Progress.Step("release %s/%s: was interrupted while it was %s, and goes on", o.Namespace, name, was)
	}
	return r, nil
}

// leaseFor is the time for which a Lease is valid. A run that is killed blocks other runs for that time.
const leaseFor = 15 * time.Second

// A BusyError means that another run is working on the release.
type BusyError struct{ Release, Holder string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("release %s: another outrider install or uninstall is at work: %s", e.Release, e.Holder)
}

// lock creates the Lease of a release and renews it until unlock is called. Helm's own lock, the pending status of a
// release, is not enough: it stays when the holder is killed. If there is a Lease of another holder, lock waits
// until it is deleted or expires. If it is renewed meanwhile, lock returns a BusyError.
func (o Options) lock(ctx context.Context, name string) (unlock func(), err error) {
	leases := o.Core.CoordinationV1().Leases(o.Namespace)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	holder := fmt.Sprintf("%s_%d_%s", host, os.Getpid(), uuid.NewUUID())
	want := &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-install", Labels: map[string]string{madeBy: madeByUs}},
		Spec:       coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(leaseFor / time.Second))},
	}
	begin := time.Now()
	var seen string // the Lease of another holder; since is the time at which it was first seen, by our own clock
	since := begin
	for {
		want.Spec.RenewTime = new(metav1.NowMicro())
		made, err := leases.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
		if err == nil {
			return o.keep(ctx, made), nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("taking the Lease %s/%s: %w", o.Namespace, want.Name, err)
		}
		is, err := leases.Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, err
		case holderOf(is) != seen:
			if time.Since(begin) > leaseFor { // it was renewed meanwhile, so its holder still runs
				return nil, &BusyError{name, holderOf(is)}
			}
			seen, since = holderOf(is), time.Now()
			o.Progress.Wait("waiting for the end of another run, or of its Lease: %s", seen)
		case time.Since(since) > leaseFor:
			err := leases.Delete(ctx, want.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &is.ResourceVersion}})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return nil, err
			}
			continue
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// holderOf returns the holder of a Lease and the time of its last renewal.
func holderOf(l *coordination.Lease) string {
	out := "unknown"
	if l.Spec.HolderIdentity != nil {
		out = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		out += ", " + l.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
	}
	return out
}

// keep renews a Lease until unlock is called.
func (o Options) keep(ctx context.Context, l *coordination.Lease) (unlock func()) {
	leases := o.Core.CoordinationV1().Leases(l.Namespace)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(leaseFor / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.Spec.RenewTime = new(metav1.NowMicro())
				if renewed, err := leases.Update(ctx, l, metav1.UpdateOptions{FieldManager: fieldManager}); err == nil {
					l = renewed // after a failure, the next tick is still before the Lease expires
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err := leases.Delete(after, l.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.DeadlineExceeded) {
			o.Progress.Step("the Lease %s/%s was not deleted, and expires: %v", l.Namespace, l.Name, err)
		}
	}
}
