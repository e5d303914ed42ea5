package kube

import (
	"errors"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"

	"outrider.dev/internal/controlplane/ca"
)

func TestWhoseATokenIs(t *testing.T) {
	const user = "system:serviceaccount:shop:web"
	status := func(user string, audiences ...string) authentication.TokenReviewStatus {
		return authentication.TokenReviewStatus{Authenticated: true, User: authentication.UserInfo{Username: user}, Audiences: audiences}
	}
	for name, tt := range map[string]struct {
		status  authentication.TokenReviewStatus
		refused string
	}{
		"a service account's":               {status(user, "istio-ca"), ""},
		"one for others too":                {status(user, "vault", "istio-ca"), ""},
		"a person's":                        {status("jane", "istio-ca"), `of user "jane", which is not a service account`},
		"half a name":                       {status("system:serviceaccount:shop", "istio-ca"), "which is not a service account"},
		"one that is for others":            {status(user, "vault"), "the token is for vault: it must be for istio-ca"},
		"from an old API server":            {status(user), "the token is for the API server alone: it must be for istio-ca"},
		"refused with a reason":             {authentication.TokenReviewStatus{Error: "token has expired"}, "rejects the token: token has expired"},
		"refused without a reason":          {authentication.TokenReviewStatus{}, "has expired, or its pod or service account was deleted"},
		"refused, with a name all the same": {authentication.TokenReviewStatus{User: authentication.UserInfo{Username: user}, Audiences: []string{"istio-ca"}}, "rejects the token"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, account, err := reviewed(&tt.status, []string{"istio-ca"})
			var refusal *ca.Refusal
			switch {
			case tt.refused == "" && (err != nil || namespace != "shop" || account != "web"):
				t.Errorf("%s/%s, %v; want shop/web", namespace, account, err)
			case tt.refused != "" && (!errors.As(err, &refusal) || !strings.Contains(refusal.Reason, tt.refused)):
				t.Errorf("%v; want a refusal with %q", err, tt.refused)
			case tt.refused != "" && namespace+account != "":
				t.Errorf("refused, and named %s/%s", namespace, account)
			}
		})
	}
}
