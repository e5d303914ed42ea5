package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/controlplane/ca"
)

// requestTimeout bounds a single request to the API server.
const requestTimeout = 10 * time.Second

// serviceAccount is the prefix of the user names of service accounts.
const serviceAccount = "system:serviceaccount:"

// Review returns the service account of a token. The error is as that of an
// [ca.Authenticator]: a [ca.Refusal] if the API server rejects the token, and another if the
// API server does not answer.
//
// Reviews are not cached. A token is reviewed when a pod starts and rarely after, and one of
// a deleted pod must be invalid at once.
func (c *Cluster) Review(ctx context.Context, token string, audiences []string) (namespace, account string, err error) {
	if strings.Count(token, ".") != 2 {
		return "", "", ca.ErrOther // service accounts have JWTs
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review, err := c.core.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", "", explain("reviewing a token", err)
	}
	return reviewed(&review.Status, audiences)
}

func reviewed(s *authentication.TokenReviewStatus, audiences []string) (namespace, account string, err error) {
	refuse := func(format string, a ...any) error {
		return &ca.Refusal{Reason: fmt.Sprintf(format, a...)}
	}
	if !s.Authenticated {
		reason := "it is not of this cluster, has expired, or its pod or service account was deleted"
		if s.Error != "" {
			reason = s.Error
		}
		return "", "", refuse("the API server rejects the token: %s", reason)
	}
	// An API server without support for audiences returns none, and has checked none.
	if !slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(audiences, a) }) {
		return "", "", refuse("the token is for %s: it must be for %s", list(s.Audiences), list(audiences))
	}
	name, ok := strings.CutPrefix(s.User.Username, serviceAccount)
	namespace, account, both := strings.Cut(name, ":")
	if !ok || !both {
		return "", "", refuse("the token is of user %q, which is not a service account", s.User.Username)
	}
	return namespace, account, nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "the API server alone"
	}
	return strings.Join(names, ", ")
}
