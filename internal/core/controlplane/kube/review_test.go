package kube

import (
	"errors"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"

	"outrider.dev/internal/core/controlplane/ca"
)

func TestWhoseATokenIs(t *testing.T) {
	const user = "system:serviceaccount:shop:web"
	status := func(user string, audiences ...string) authentication.TokenReviewStatus {
		extra := map[string]authentication.ExtraValue{podName: {"web-1"}, podUID: {"4711"}, "authentication.kubernetes.io/node-name": {"n"}}
		return authentication.TokenReviewStatus{Authenticated: true, User: authentication.UserInfo{Username: user, Extra: extra}, Audiences: audiences}
	}
	bound := func(extra map[string]authentication.ExtraValue) authentication.TokenReviewStatus {
		s := status(user, "istio-ca")
		s.User.Extra = extra
		return s
	}
	for name, tt := range map[string]struct {
		status  authentication.TokenReviewStatus
		refused string
	}{
		"a service account's":               {status(user, "istio-ca"), ""},
		"one for others too":                {status(user, "vault", "istio-ca"), ""},
		"a person's":                        {status("jane", "istio-ca"), `of user "jane", which is not a service account`},
		"one of no pod":                     {bound(nil), "the token is bound to no pod"},
		"one of a pod without a UID":        {bound(map[string]authentication.ExtraValue{podName: {"web-1"}, podUID: {""}}), "bound to no pod"},
		"one of two pods":                   {bound(map[string]authentication.ExtraValue{podName: {"web-1", "web-2"}, podUID: {"1", "2"}}), "bound to no pod"},
		"half a name":                       {status("system:serviceaccount:shop", "istio-ca"), "which is not a service account"},
		"one that is for others":            {status(user, "vault"), "the token is for vault: it must be for istio-ca"},
		"from an old API server":            {status(user), "the token is for the API server alone: it must be for istio-ca"},
		"refused with a reason":             {authentication.TokenReviewStatus{Error: "token has expired"}, "rejects the token: token has expired"},
		"refused without a reason":          {authentication.TokenReviewStatus{}, "has expired, or its pod or service account was deleted"},
		"refused, with a name all the same": {authentication.TokenReviewStatus{User: authentication.UserInfo{Username: user}, Audiences: []string{"istio-ca"}}, "rejects the token"},
	} {
		t.Run(name, func(t *testing.T) {
			of, err := reviewed(&tt.status, []string{"istio-ca"})
			var refusal *ca.Refusal
			switch {
			case tt.refused == "" && (err != nil || of != ca.Subject{Namespace: "shop", ServiceAccount: "web", Pod: "web-1"}):
				t.Errorf("%+v, %v; want pod web-1 of shop/web", of, err)
			case tt.refused != "" && (!errors.As(err, &refusal) || !strings.Contains(refusal.Reason, tt.refused)):
				t.Errorf("%v; want a refusal with %q", err, tt.refused)
			case tt.refused != "" && of != ca.Subject{}:
				t.Errorf("refused, and named %+v", of)
			}
		})
	}
}
