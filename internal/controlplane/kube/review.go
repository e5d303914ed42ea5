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

// answerWithin bounds a single question to the API server.
const answerWithin = 10 * time.Second

// serviceAccount begins the names of the users that are service accounts.
const serviceAccount = "system:serviceaccount:"

// Review says which service account a token is of. The error is as that of an
// [ca.Authenticator]: an [ca.Refusal] if the API server does not take it, and
// another if the API server cannot be asked.
//
// No answer is kept. A token is asked about when a pod starts and then hardly ever, and
// one whose pod was deleted must be good for nothing from then on.
func (c *Cluster) Review(ctx context.Context, token string, audiences []string) (namespace, account string, err error) {
	if strings.Count(token, ".") != 2 {
		return "", "", ca.ErrOther // no JWT: no service account has such a token
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	review, err := c.core.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", "", explain("asking the API server whose a token is", err)
	}
	return reviewed(&review.Status, audiences)
}

func reviewed(s *authentication.TokenReviewStatus, audiences []string) (namespace, account string, err error) {
	refuse := func(format string, a ...any) error {
		return &ca.Refusal{Reason: fmt.Sprintf(format, a...)}
	}
	if !s.Authenticated {
		reason := "it is none of this cluster, has expired, or its pod or service account is gone"
		if s.Error != "" {
			reason = s.Error
		}
		return "", "", refuse("the API server does not take the token: %s", reason)
	}
	// An API server that does not know of audiences returns none, and has checked none.
	if !slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(audiences, a) }) {
		return "", "", refuse("the token is for %s: it must be for %s", list(s.Audiences), list(audiences))
	}
	name, ok := strings.CutPrefix(s.User.Username, serviceAccount)
	namespace, account, both := strings.Cut(name, ":")
	if !ok || !both {
		return "", "", refuse("the token is that of %q, which is no service account", s.User.Username)
	}
	return namespace, account, nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "the API server alone"
	}
	return strings.Join(names, ", ")
}
