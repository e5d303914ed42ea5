package controlplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
)

// byToken serves the streams of clients that prove their identity by a token, as Istio's
// pilot-agent does where it has no certificate in a file. The connection then counts as one of
// that identity. One-time tokens are not for streams: they are spent on a certificate.
type byToken struct {
	tokens *ca.Service
	age    time.Duration // of a stream, more or less a tenth
}

// errAged ends a stream. The client opens another one, with the token that it has then.
var errAged = status.Error(codes.Unavailable, "the stream has reached its age, or its token the expiry: connect again")

func (b byToken) serve(service any, s grpc.ServerStream, info *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	if !isDiscovery(info.FullMethod) {
		return serve(service, s)
	}
	caller, err := b.tokens.Authenticate(s.Context())
	if err != nil {
		return err
	}
	left := b.age - b.age/10 + rand.N(b.age/5+1)
	if !caller.Expiry.IsZero() {
		left = min(left, time.Until(caller.Expiry))
	}
	// The connection is closed after its stream, whose status the client reads.
	if err := conns.Identify(s.Context(), caller.Identity.String(), time.Now().Add(left+ageGrace)); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	ctx := context.WithValue(s.Context(), tokenKey{}, caller.Identity)
	return endedBy(s, ctx, func(ctx context.Context, end context.CancelCauseFunc) {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
			end(errAged)
		case <-ctx.Done():
		}
	}, func(s grpc.ServerStream) error { return serve(service, s) })
}

type tokenKey struct{}

// tokenOf is the identity that a stream's token has proved; false: it has another proof.
func tokenOf(ctx context.Context) (ca.Identity, bool) {
	id, ok := ctx.Value(tokenKey{}).(ca.Identity)
	return id, ok
}

// maxReviews is how many tokens the API server reviews at once, and maxReviewsOfOne how many
// of one address: a restart of 10,000 proxies that come with tokens is 10,000 reviews, of some
// 5 ms each. The others wait by turns of their addresses, at most reviewWait.
const (
	maxReviews, maxReviewsOfOne = 32, 8
	reviewWait                  = 10 * time.Second
)

// boundedReviews limits how many reviews of a reviewer run at a time.
type boundedReviews struct {
	ca.Reviewer
	turns *conns.Gate
}

func (b boundedReviews) Review(ctx context.Context, token string, audiences []string) (ca.Subject, error) {
	waiting, cancel := context.WithTimeout(ctx, reviewWait)
	defer cancel()
	leave, err := b.turns.Enter(waiting, conns.From(ctx), 1)
	if err != nil {
		return ca.Subject{}, fmt.Errorf("waiting for the review of a token: %w", err)
	}
	defer leave()
	return b.Reviewer.Review(ctx, token, audiences)
}
