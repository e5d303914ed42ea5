package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// pilotStream opens a stream as Istio's pilot-agent does for a proxy in the namespace shop that has no
// certificate: on a separate connection, with a token in each call.
func pilotStream(t *testing.T, state, address, token string, more ...string) (stream, error) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(soon(t), "ClusterID", "Kubernetes")
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	s, err := discovery.NewAggregatedDiscoveryServiceClient((&workload{t: t, state: state}).dial(address)).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	// If Send fails, Recv returns the error.
	_ = s.Send(&discovery.DeltaDiscoveryRequest{
		Node:    &core.Node{Id: "sidecar~192.0.2.1~web-1.shop~shop.svc.cluster.local"},
		TypeUrl: xds.ClusterType, ResourceNamesSubscribe: more,
	})
	_, err = s.Recv()
	return s, err
}

func TestStreamByToken(t *testing.T) {
	state, folder := t.TempDir(), t.TempDir()
	put(t, filepath.Join(folder, "vm.yaml"), hostManifest("vm-1", "web", "once"))
	at := started(t, Options{Folder: folder, State: state})
	tokens, err := ca.NewTokens(state, mesh.DefaultTrustDomain)
	if err != nil {
		t.Fatal(err)
	}
	token := func(c ca.Claim, now time.Time) string {
		t.Helper()
		text, err := tokens.Issue(c, now)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	of := func(namespace string) ca.Claim { return ca.Claim{Namespace: namespace, ServiceAccount: "web"} }

	t.Run("with more than a client without an identity may send", func(t *testing.T) {
		var names []string
		for i := range 10_000 {
			names = append(names, fmt.Sprintf("%0300d", i))
		}
		s, err := pilotStream(t, state, at.Discovery, token(of("shop"), time.Now()), names...)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.ListenerType}); err != nil {
			t.Fatal(err)
		}
		for {
			r, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if r.TypeUrl == xds.ListenerType { // it follows the clusters, which take several messages
				return
			}
		}
	})

	refused := map[string]struct {
		token, want string
		code        codes.Code
	}{
		"without a token":                                     {"", "neither a token nor a certificate", codes.Unauthenticated},
		"with the token of another issuer":                    {"rubbish.rubbish.rubbish", "of a kind that this control plane does not know", codes.Unauthenticated},
		"with the token of another namespace than the node's": {token(of("bank"), time.Now()), `claims "shop", its identity has "bank"`, codes.PermissionDenied},
		"with an expired token":                               {token(of("shop"), time.Now().Add(-2*time.Hour)), "the token expired", codes.Unauthenticated},
		"with a token for another audience":                   {token(ca.Claim{Namespace: "shop", ServiceAccount: "web", Audiences: []string{"vault"}}, time.Now()), `the token is for audience ["vault"]`, codes.Unauthenticated},
		"with the one-time token of a host":                   {"once", "of a kind that this control plane does not know", codes.Unauthenticated},
	}
	for name, tt := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := pilotStream(t, state, at.Discovery, tt.token)
			if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %s with %q", err, tt.code, tt.want)
			}
		})
	}
	if err := (&workload{t: t, state: state}).certify(at.Discovery, "once"); err != nil {
		t.Errorf("the token that a stream was refused with is spent: %v", err)
	}

	t.Run("until the token expires", func(t *testing.T) {
		s, err := pilotStream(t, state, at.Discovery, token(ca.Claim{Namespace: "shop", ServiceAccount: "web", TTL: 3 * time.Second}, time.Now()))
		for err == nil {
			_, err = s.Recv()
		}
		aged(t, err)
	})
}

// A stream that began with a token ends at the maximum age of connections, so that a pod that has left the
// mesh soon receives no more configuration.
func TestStreamByTokenEndsWithItsAge(t *testing.T) {
	state, folder := t.TempDir(), t.TempDir()
	at := started(t, Options{Folder: folder, State: state, ConnectionAge: time.Second})
	tokens, err := ca.NewTokens(state, mesh.DefaultTrustDomain)
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Issue(ca.Claim{Namespace: "shop", ServiceAccount: "web"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s, err := pilotStream(t, state, at.Discovery, token)
	for err == nil {
		_, err = s.Recv()
	}
	aged(t, err)
}

func aged(t *testing.T, err error) {
	t.Helper()
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "connect again") {
		t.Errorf("%v; want %v", err, errAged)
	}
}

// A slowReviewer is a reviewer whose reviews last until the test ends them.
type slowReviewer struct{ began, end chan struct{} }

func (r slowReviewer) Review(ctx context.Context, _ string, _ []string) (ca.Subject, error) {
	r.began <- struct{}{}
	select {
	case <-r.end:
		return ca.Subject{}, nil
	case <-ctx.Done():
		return ca.Subject{}, ctx.Err()
	}
}

func TestReviewsAtOnceAreBounded(t *testing.T) {
	r := slowReviewer{make(chan struct{}, 100), make(chan struct{})}
	b := boundedReviews{r, conns.NewGate(2, 2)}
	answers := make(chan error)
	for range 3 {
		go func() {
			_, err := b.Review(t.Context(), "a.b.c", nil)
			answers <- err
		}()
	}
	<-r.began
	<-r.began
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := b.Review(gone, "a.b.c", nil); err == nil || !strings.Contains(err.Error(), "waiting for the review of a token") {
		t.Errorf("%v; want that the review waited for its turn until the client left", err)
	}
	if n := len(r.began); n != 0 {
		t.Errorf("%d more reviews began; want that they wait", n)
	}
	close(r.end)
	for range 3 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if free := b.turns.Free(); free != 2 {
		t.Errorf("%d turns are free; want 2", free)
	}
}
