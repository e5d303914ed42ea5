package controlplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
)

// byToken serves the streams of clients that prove their identity by a token, as Istio's pilot-agent does if
// it has no certificate in a file. The connection then counts for that identity. One-time tokens are refused
// for streams, because each of them is for one certificate.
type byToken struct {
	tokens *ca.Service
	age    time.Duration // age of a stream at which it ends, plus or minus a tenth at random
}

// errAged ends a stream at its age. The client then opens another stream, with its current token.
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
	// The connection is closed later than its stream, so that the client can read the stream's status.
	if err := conns.Identify(s.Context(), caller.Identity.String(), time.Now().Add(left+ageGrace)); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	ctx := context.WithValue(s.Context(), tokenKey{}, caller.Identity)
	return endedBy(s, ctx, func(ctx context.Context, end context.CancelCauseFunc) {
		if latest.Wait(ctx, time.After(left)) {
			end(errAged)
		}
	}, func(s grpc.ServerStream) error { return serve(service, s) })
}

type tokenKey struct{}

// tokenOf returns the identity that the token of a stream proved; false: the client used no token.
func tokenOf(ctx context.Context) (ca.Identity, bool) {
	id, ok := ctx.Value(tokenKey{}).(ca.Identity)
	return id, ok
}

// maxReviews is the maximum number of tokens that the API server reviews at the same time, maxReviewsOfOne
// the maximum for one address. The limits are needed because a restart of 10,000 proxies with tokens causes
// 10,000 reviews of some 5 ms each. Other reviews wait at most reviewWait, and addresses take turns.
const (
	maxReviews, maxReviewsOfOne = 32, 8
	reviewWait                  = 10 * time.Second
)

// boundedReviews limits the number of reviews that run at the same time.
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
