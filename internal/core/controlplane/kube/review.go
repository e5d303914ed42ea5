package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/core/controlplane/ca"
)

// requestTimeout limits a single request to the API server.
const requestTimeout = 10 * time.Second

// serviceAccount is the prefix of the user names of service accounts.
const serviceAccount = "system:serviceaccount:"

// Keys of the user's extra fields in a TokenReview that identify the pod to which the token is bound.
const (
	podName = "authentication.kubernetes.io/pod-name"
	podUID  = "authentication.kubernetes.io/pod-uid"
)

// Review returns the subject of a token. Its errors follow [ca.Authenticator]: a [ca.Refusal] if the
// API server rejects the token, another error if the API server does not answer. The API server rejects the
// token of a pod or a service account that no longer exists.
//
// Reviews are not cached, because they are rare: a token is reviewed when a pod starts, at half of a
// certificate's lifetime, and when a stream begins with it.
func (c *Cluster) Review(ctx context.Context, token string, audiences []string) (ca.Subject, error) {
	if strings.Count(token, ".") != 2 {
		return ca.Subject{}, ca.ErrOther // tokens of service accounts are JWTs
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review, err := c.core.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return ca.Subject{}, explain("reviewing a token", err)
	}
	return reviewed(&review.Status, audiences)
}

func reviewed(s *authentication.TokenReviewStatus, audiences []string) (ca.Subject, error) {
	refuse := func(format string, a ...any) (ca.Subject, error) {
		return ca.Subject{}, &ca.Refusal{Reason: fmt.Sprintf(format, a...)}
	}
	if !s.Authenticated {
		reason := "it is not of this cluster, has expired, or its pod or service account was deleted"
		if s.Error != "" {
			reason = s.Error
		}
		return refuse("the API server rejects the token: %s", reason)
	}
	// An API server that does not support audiences returns none, and has not checked any.
	if !slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(audiences, a) }) {
		return refuse("the token is for %s: it must be for %s", list(s.Audiences), list(audiences))
	}
	name, ok := strings.CutPrefix(s.User.Username, serviceAccount)
	namespace, account, both := strings.Cut(name, ":")
	if !ok || !both {
		return refuse("the token is of user %q, which is not a service account", s.User.Username)
	}
	// Tokens that are not bound to a pod are refused, because they stay valid until they expire, even if the
	// process that used them no longer runs.
	pods, uids := s.User.Extra[podName], s.User.Extra[podUID]
	if len(pods) != 1 || len(uids) != 1 || pods[0] == "" || uids[0] == "" {
		return refuse("the token is bound to no pod: a pod has one in a projected volume; a machine outside of the cluster joins by the token of a Host")
	}
	return ca.Subject{Namespace: namespace, ServiceAccount: account, Pod: pods[0]}, nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "the API server alone"
	}
	return strings.Join(names, ", ")
}
