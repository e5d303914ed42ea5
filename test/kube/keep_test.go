package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/client-go/tools/clientcmd/api"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/test/roots"
)

func (w world) token(t *testing.T, namespace, account string, audience []string, bound *authentication.BoundObjectReference) string {
	t.Helper()
	r, err := w.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{Audiences: audience, BoundObjectRef: bound},
	}, metav1.CreateOptions{})
	must(t, err)
	return r.Status.Token
}

func tokensAreReviewed(t *testing.T) {
	w := enterWorld(t)
	w.namespace(t, "tokens", nil)
	good := w.tokenOf(t, "tokens")
	mesh := []string{ca.DefaultAudience}
	bound, _ := w.podToken(t, "tokens", "p")
	var j journal
	c := w.connect(t, &j, outriderd)
	review := func(c *kube.Cluster, token string) (ca.Identity, error) {
		caller, err := ca.Reviewed{Reviewer: c, TrustDomain: "cluster.local", Audiences: mesh}.Authenticate(t.Context(), ca.Credentials{Bearer: token})
		return caller.Identity, err
	}
	refused := func(what, token, reason string) {
		t.Helper()
		_, err := review(c, token)
		if r := (*ca.Refusal)(nil); !errors.As(err, &r) || !strings.Contains(r.Reason, reason) || strings.Contains(r.Reason, token) {
			t.Errorf("%s: %v, want a refusal with %q", what, err, reason)
		}
	}
	for what, token := range map[string]string{"a pod's": good, "another's": bound} {
		if id, err := review(c, token); err != nil || id.String() != "spiffe://cluster.local/ns/tokens/sa/default" {
			t.Errorf("%s: %v, %v", what, id, err)
		}
	}
	refused("the API server's own", w.token(t, "tokens", "default", nil, nil), "the API server rejects the token: ")
	refused("that of another audience", w.token(t, "tokens", "default", []string{"vault"}, nil), "the API server rejects the token: ")
	refused("that of no pod", w.token(t, "tokens", "default", mesh, nil), "the token is bound to no pod")
	refused("a forged one", good[:len(good)-8]+"AAAAAAAA", "the API server rejects the token: ")
	if _, err := review(c, "a-host's-token"); !errors.Is(err, ca.ErrOther) {
		t.Errorf("what is no token of Kubernetes: %v, want %v", err, ca.ErrOther)
	}
	must(t, w.CoreV1().Pods("tokens").Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	until(t, "the token of a pod that is gone is refused", func() bool { _, err := review(c, bound); return err != nil }, j.String)

	// If the API server does not answer, the token is not refused: the error is of another kind.
	unsure := func(c *kube.Cluster, words string) {
		t.Helper()
		_, err := review(c, good)
		if r := (*ca.Refusal)(nil); err == nil || errors.As(err, &r) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), good) {
			t.Errorf("%v, want an error that is no refusal, with %q", err, words)
		}
	}
	l := newGap(t, w)
	through := w.connect(t, &j, l.through)
	if _, err := review(through, good); err != nil {
		t.Error(err)
	}
	l.cut()
	unsure(through, "reviewing a token: ") // a new connection is refused, and an existing one is reset
	unsure(w.connect(t, &j, as("tokens", "default")), `cannot create resource "tokenreviews" in API group "authentication.k8s.io" at the cluster scope; the chart has the roles`)
}

func TestNamespacesAreKnownAtOnce(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	var j journal
	n := w.connect(t, &j, outriderd).Namespaces(t.Context())
	<-n.Synced()
	if _, ok := n.Get("default"); !ok {
		t.Error("default is not known")
	}
	if _, ok := n.Get("nowhere"); ok {
		t.Error("nowhere is known")
	}
	for _, name := range []string{"labels-a", "labels-b", "labels-c"} {
		w.emptyNamespace(t, name, map[string]string{"istio-injection": "enabled"})
		if ns, ok := n.Get(name); !ok || ns.Labels["istio-injection"] != "enabled" {
			t.Errorf("right after it was made: %v, %v", ns, ok)
		}
	}
	kubectl(t, "", "label", "namespace", "labels-a", "istio-injection-")
	until(t, "the label is gone", func() bool { ns, ok := n.Get("labels-a"); return ok && ns.Labels["istio-injection"] == "" }, j.String)
	kubectl(t, "", "delete", "namespace", "labels-b")
	until(t, "the namespace is gone", func() bool { _, ok := n.Get("labels-b"); return !ok }, j.String)
}

func TestRootsAreInEveryNamespace(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	var j journal
	l := newGap(t, w)
	c := w.connect(t, &j, func(c *api.Cluster, a *api.AuthInfo) { outriderd(c, a); l.through(c, a) })
	r := roots.New("first")
	keeper := c.RootKeeper(c.Namespaces(t.Context()), r, "outrider-system")
	running(t, keeper.Run)
	data := func(namespace string) map[string]string {
		m, err := w.CoreV1().ConfigMaps(namespace).Get(context.Background(), contract.RootConfigMap, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return m.Data
	}
	has := func(namespace, pem string) {
		t.Helper()
		until(t, namespace+" has the roots "+pem, func() bool { return data(namespace)["root-cert.pem"] == pem }, j.String)
	}
	has("default", "first")
	has("outrider-system", "first")
	w.namespace(t, "roots", nil)
	has("roots", "first")

	kubectl(t, "", "delete", "configmap", contract.RootConfigMap, "--namespace=roots")
	has("roots", "first")
	kubectl(t, "", "patch", "configmap", contract.RootConfigMap, "--namespace=roots", `--patch={"data":{"root-cert.pem":"forged","other":"stays"}}`)
	has("roots", "first")
	r.Set("second")
	has("roots", "second")
	has("default", "second")
	if got := data("roots")["other"]; got != "stays" {
		t.Errorf("what others wrote is %q", got)
	}
	r.Set("") // as if the file were empty while it is replaced: the pods must keep their roots
	r.Set("third")
	has("roots", "third")
	if text := j.String(); strings.Contains(text, "by=client-go") { // client-go may log connections that are cut
		t.Errorf("the log:\n%s", text)
	}

	l.cut()
	r.Set("fourth")
	w.namespace(t, "roots-later", nil)
	until(t, "there is trouble", func() bool { return len(c.Trouble()) > 0 }, j.String)
	l.mend(t)
	has("roots-later", "fourth")
	has("roots", "fourth")
	until(t, "the trouble has ended", func() bool { return len(c.Trouble()) == 0 }, j.String)

	kubectl(t, "", "delete", "namespace", "roots")
	for _, namespace := range []string{"kube-system", "kube-public", "kube-node-lease"} {
		if data(namespace) != nil {
			t.Errorf("%s has roots", namespace)
		}
	}
	if text := j.String(); strings.Contains(text, "forbidden") {
		t.Errorf("the log:\n%s", text)
	}
}

func TestTheWebhooksConfigurationIsKept(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	const name = "outrider-injector" // the role allows writing only the configuration of this name
	r := roots.New("first")
	var j journal
	for range 2 { // two replicas
		c := w.connect(t, &j, outriderd)
		configurations := c.WebhookConfigurations(t.Context(), name)
		// The write can come in time only if the keeper is notified: otherwise it looks only once an hour.
		running(t, (&webhook.Keeper{Configurations: configurations, Name: name, Roots: r, Log: j.log(), Changed: configurations.Changed, Look: time.Hour}).Run)
	}
	all := w.AdmissionregistrationV1().MutatingWebhookConfigurations()
	write := func() {
		t.Helper()
		stored, err := webhook.Configuration(webhook.ConfigurationOptions{})
		must(t, err)
		_, err = all.Create(t.Context(), stored, metav1.CreateOptions{})
		must(t, err)
	}
	has := func(bundle string) {
		t.Helper()
		until(t, "the bundle "+bundle, func() bool {
			c, err := all.Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && string(c.Webhooks[0].ClientConfig.CABundle) == bundle && string(c.Webhooks[len(c.Webhooks)-1].ClientConfig.CABundle) == bundle
		}, j.String)
	}
	remove := func() { all.Delete(context.Background(), name, metav1.DeleteOptions{}) }
	t.Cleanup(remove)
	until(t, "both say that there is none", func() bool { return strings.Count(j.String(), "there is no configuration") == 2 }, j.String)
	r.Set(pem(t))
	write()
	has(pem(t))
	kubectl(t, "", "patch", "mutatingwebhookconfiguration", name, "--type=json", `--patch=[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
	has(pem(t))
	remove()
	until(t, "both say it again", func() bool { return strings.Count(j.String(), "there is no configuration") == 4 }, j.String)
	write()
	has(pem(t))
	if text := j.String(); strings.Contains(text, "forbidden") {
		t.Errorf("the log:\n%s", text)
	}
}

var madePEM string

// pem returns a root certificate in PEM, because the API server accepts only certificates in a bundle.
func pem(t *testing.T) string {
	t.Helper()
	if madePEM == "" {
		a, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(t.TempDir())})
		must(t, err)
		madePEM = string(a.RootsPEM())
	}
	return madePEM
}
