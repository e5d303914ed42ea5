package kube

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/controlplane/ca"
)

// UsedTokens implements [ca.UsedTokens] in a cluster: each used token has a ConfigMap, whose name contains
// the SHA-256 of the token. The request that creates the ConfigMap is the first use of the token.
type UsedTokens struct {
	cluster   *Cluster
	namespace string
}

// UsedTokens returns the record of used tokens in a namespace.
func (c *Cluster) UsedTokens(namespace string) *UsedTokens { return &UsedTokens{c, namespace} }

// Keys in the ConfigMap's data, and the value of its label.
const (
	usedKey  = "key-sha256"
	usedTime = "used-at"
	kindUsed = "used-token" // value of contract.KindLabel
)

// usedPage is the maximum number of ConfigMaps in one response.
const usedPage = 500

// Use implements [ca.UsedTokens].
func (u *UsedTokens) Use(ctx context.Context, token, key [32]byte, now time.Time) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := contract.UsedTokenPrefix + hex.EncodeToString(token[:])
	maps := u.cluster.core.CoreV1().ConfigMaps(u.namespace)
	immutable := true
	_, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels.Merge(madeHere, labels.Set{contract.KindLabel: kindUsed})},
		Data:       map[string]string{usedKey: hex.EncodeToString(key[:]), usedTime: now.UTC().Format(time.RFC3339)},
		Immutable:  &immutable,
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err == nil {
		return true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return false, explain("storing a used host token", err)
	}
	first, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, explain("reading a used host token", err)
	}
	use, err := firstUse(first)
	return err == nil && use.Allows(key, now), nil // even if the ConfigMap cannot be parsed, the token was used
}

// firstUse parses the ConfigMap of a used token. It fails if the content is invalid.
func firstUse(m *corev1.ConfigMap) (use ca.FirstUse, err error) {
	raw, err := hex.DecodeString(m.Data[usedKey])
	if err != nil || len(raw) != len(use.Key) {
		return use, fmt.Errorf("%s of the ConfigMap %s is not 64 hexadecimal digits", usedKey, m.Name)
	}
	copy(use.Key[:], raw)
	use.At, err = time.Parse(time.RFC3339, m.Data[usedTime])
	return use, err
}

// UsedTokenKept is the time after its use for which a used token is recorded although no Host declares it. If
// a Host declares it after that, it can be used once more.
const UsedTokenKept = 30 * 24 * time.Hour

// Sweep deletes the ConfigMaps of tokens that were used longer than [UsedTokenKept] ago and that no Host
// declares. If it fails, it still returns the number that it has deleted.
func (u *UsedTokens) Sweep(ctx context.Context, declared func(sum [32]byte) bool, now time.Time) (deleted int, err error) {
	maps := u.cluster.core.CoreV1().ConfigMaps(u.namespace)
	options := metav1.ListOptions{LabelSelector: labels.Set{contract.KindLabel: kindUsed}.String(), Limit: usedPage}
	for {
		page, err := u.page(ctx, options)
		if err != nil {
			return deleted, explain("listing used host tokens", err)
		}
		for i := range page.Items {
			m := &page.Items[i]
			if !expired(m, declared, now) {
				continue
			}
			// The UID prevents the deletion of a ConfigMap that was created again meanwhile.
			err := maps.Delete(ctx, m.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return deleted, explain("deleting a used host token", err)
			}
			if err == nil {
				deleted++
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return deleted, nil
		}
	}
}

func (u *UsedTokens) page(ctx context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return u.cluster.core.CoreV1().ConfigMaps(u.namespace).List(ctx, o)
}

// expired reports whether the record of a used token may be deleted. It returns false for a ConfigMap that
// cannot be parsed.
func expired(m *corev1.ConfigMap, declared func([32]byte) bool, now time.Time) bool {
	if !isMadeHere(m) {
		return false
	}
	sum, _ := strings.CutPrefix(m.Name, contract.UsedTokenPrefix)
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != 32 {
		return false
	}
	use, err := firstUse(m)
	return err == nil && now.After(use.At.Add(UsedTokenKept)) && !declared([32]byte(raw))
}

// sweepEvery is the interval at which each replica looks for expired tokens.
const sweepEvery = 6 * time.Hour

// Run deletes expired tokens regularly, from the time when synced is closed until ctx ends. While the mesh
// has no hosts it sends no request, and needs no permission.
func (u *UsedTokens) Run(ctx context.Context, synced <-chan struct{}, hosts ca.Hosts) error {
	if !latest.Wait(ctx, synced) {
		return ctx.Err()
	}
	const tried = "removing used host tokens"
	defer u.cluster.trouble.forget(tried)
	declared := func(sum [32]byte) bool { _, ok := hosts.HostByToken(sum); return ok }
	for {
		pause := sweepEvery
		if hosts.Any() {
			deleted, err := u.Sweep(ctx, declared, time.Now())
			if ctx.Err() != nil {
				return ctx.Err()
			}
			u.cluster.trouble.note(tried, err)
			if err != nil {
				pause = time.Minute
			}
			if deleted > 0 {
				u.cluster.log.Info("used host tokens removed: no Host has them", "tokens", deleted)
			}
		}
		if !latest.Wait(ctx, time.After(pause)) {
			return ctx.Err()
		}
	}
}
