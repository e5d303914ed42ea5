package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/chart"
	"outrider.dev/test/roots"
	"outrider.dev/test/tier"
)

// roles returns the rules of ClusterRoles in the cluster, one for each resource and verb.
func (w world) roles(t *testing.T, names ...string) []rbac.PolicyRule {
	t.Helper()
	var out []rbac.PolicyRule
	for _, name := range names {
		role, err := w.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					names := rule.ResourceNames
					if len(names) == 0 {
						names = []string{""}
					}
					for _, name := range names {
						one := rbac.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{resource}, Verbs: []string{verb}}
						if name != "" {
							one.ResourceNames = []string{name}
						}
						out = append(out, one)
					}
				}
			}
		}
	}
	return out
}

// may grants rules to a service account of the namespace "roles", by a ClusterRole.
func (w world) may(t *testing.T, account string, rules []rbac.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "roles-" + account}
	_, err := w.RbacV1().ClusterRoles().Create(t.Context(), &rbac.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	_, err = w.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbac.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbac.Subject{{Kind: rbac.ServiceAccountKind, Namespace: "roles", Name: account}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		w.RbacV1().ClusterRoleBindings().Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
		w.RbacV1().ClusterRoles().Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
	})
}

// accessOf returns the access that a rule of [world.roles] grants.
func accessOf(rule rbac.PolicyRule) authorization.ResourceAttributes {
	return authorization.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0], Name: strings.Join(rule.ResourceNames, "")}
}

// allowed waits until the API server allows an access by a service account, which may take a moment after a role
// was changed.
func (w world) allowed(t *testing.T, namespace, account string, access authorization.ResourceAttributes) {
	t.Helper()
	until(t, "the role of "+account, func() bool {
		r, err := w.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorization.SubjectAccessReview{
			Spec: authorization.SubjectAccessReviewSpec{User: "system:serviceaccount:" + namespace + ":" + account, ResourceAttributes: &access},
		}, metav1.CreateOptions{})
		return err == nil && r.Status.Allowed
	}, nothing)
}

// The roles grant exactly the permissions that outriderd needs: with all of them every operation works, and without
// one of them an operation fails with an error that names it.
func TestTheRolesAreEnoughAndNotMore(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.namespace(t, "roles", nil)
	apply(t, hosts(t)+"---\n"+peerAuthentications+"---\n"+definition("security.istio.io", "AuthorizationPolicy", "authorizationpolicies")+"---\n"+gatewayDefinitions(t)+"---\n"+policyDefinitions(t))
	definitions := slices.Concat([]string{"hosts.outrider.dev", "peerauthentications.security.istio.io", "authorizationpolicies.security.istio.io"}, gatewayKinds, policyKinds)
	t.Cleanup(w.undefine(definitions...))
	rules := w.roles(t, "outriderd", "outriderd-mesh")
	ignored := w.roles(t, "outriderd-ignored")                                                                                                                        // optional: see package kube
	ignored = append(ignored, rbac.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update"}}) // granted by the Role in the namespace
	if len(rules) < 25 {
		t.Fatalf("%d rules only: %v", len(rules), rules)
	}
	account := func(i int) string { return fmt.Sprintf("case-%d", i) }
	for i := range rules {
		w.may(t, account(i), slices.Concat(rules[:i], rules[i+1:], ignored))
	}
	w.may(t, "all", slices.Concat(rules, ignored))
	token := w.tokenOf(t, "roles")
	t.Run("all of them", func(t *testing.T) {
		w.allowed(t, "roles", "all", accessOf(rules[len(rules)-1]))
		a := w.attempt(t, "all", token)
		until(t, "all is done", func() bool { return a.done() }, a.text)
		if text := a.text(); strings.Contains(text, "cannot") {
			t.Errorf("with every permission:\n%s", text)
		}
	})
	tried := 0
	for i, rule := range rules {
		want := fmt.Sprintf("cannot %s resource %q in API group %q", rule.Verbs[0], rule.Resources[0], rule.APIGroups[0])
		name := fmt.Sprint(rule.Verbs[0], " ", rule.Resources[0], " ", strings.Join(rule.ResourceNames, ""))
		if !tier.Sample(name, 3) {
			continue
		}
		tried++
		t.Run(name, func(t *testing.T) {
			w.allowed(t, "roles", account(i), accessOf(rules[(i+1)%len(rules)]))
			a := w.attempt(t, account(i), token)
			until(t, want, func() bool {
				return strings.Contains(a.text(), want) && strings.Contains(a.text(), strings.Join(rule.ResourceNames, ""))
			}, a.text)
			if text := strings.ReplaceAll(a.text(), want, ""); strings.Contains(text, "cannot") {
				t.Errorf("something else is missing too:\n%s", text)
			}
		})
	}
	t.Logf("without %d of %d permissions: OUTRIDER_NIGHTLY=1 tries each", tried, len(rules))
}

// tokenOf creates a pod, which is never scheduled, and returns a token that is bound to it.
func (w world) tokenOf(t *testing.T, namespace string) string {
	t.Helper()
	token, _ := w.podToken(t, namespace, "holder")
	return token
}

// podToken creates a pod and a token that is bound to it. The pod is never scheduled. It does not name a node, because
// Kubernetes deletes pods whose node does not exist.
func (w world) podToken(t *testing.T, namespace, name string) (token string, pod *corev1.Pod) {
	t.Helper()
	pod, err := w.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "a", Image: "none"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	bound := &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: pod.UID}
	return w.token(t, namespace, "default", []string{ca.DefaultAudience}, bound), pod
}

// statusless are objects that have no status yet. outriderd writes it.
const statusless = `
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web, namespace: roles}, spec: {parentRefs: [{group: "", kind: Service, name: web}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: GRPCRoute, metadata: {name: web, namespace: roles}, spec: {parentRefs: [{group: "", kind: Service, name: web}]}}
---
{apiVersion: outrider.dev/v1alpha1, kind: BackendPolicy, metadata: {name: web, namespace: roles}, spec: {targetRefs: [{group: "", kind: Service, name: web}], connections: {max: 7}}}
---
{apiVersion: gateway.networking.x-k8s.io/v1alpha1, kind: XBackendTrafficPolicy, metadata: {name: web, namespace: roles}, spec: {targetRefs: [{group: "", kind: Service, name: web}], retryConstraint: {}}}
`

// An attempt performs all operations of outriderd in a cluster, with the permissions of one service account.
type attempt struct {
	journal journal
	cluster *kube.Cluster
	done    func() bool
}

// text returns the log and the current problems of the connection to the cluster.
func (a *attempt) text() string {
	return a.journal.String() + strings.Join(a.cluster.Trouble(), "\n")
}

func (w world) attempt(t *testing.T, account, token string) *attempt {
	t.Helper()
	// Delete two objects that outriderd must write again: the ConfigMap in one namespace, and the bundle.
	err := w.CoreV1().ConfigMaps("roles").Delete(t.Context(), contract.RootConfigMap, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	const name = "outrider-injector"
	configurations := w.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configurations.Delete(t.Context(), name, metav1.DeleteOptions{})
	stored, err := webhook.Configuration(webhook.ConfigurationOptions{})
	must(t, err)
	_, err = configurations.Create(t.Context(), stored, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { configurations.Delete(context.Background(), name, metav1.DeleteOptions{}) })

	remove(t, statusless)
	apply(t, statusless)

	a := &attempt{}
	a.cluster = w.connect(t, &a.journal, as("roles", account))
	r := roots.New(pem(t))
	ctx := t.Context()
	n := a.cluster.Namespaces(ctx)
	source := a.cluster.Source(ctx, mesh.Config{})
	running(t, a.cluster.RouteStatus("roles", source, "ignored").Run)
	running(t, a.cluster.RootKeeper(n, r, "outrider-system").Run)
	followed := a.cluster.WebhookConfigurations(ctx, "")
	running(t, (&webhook.Keeper{Configurations: followed, Name: name, Roots: r, Log: a.journal.log(), Changed: followed.Changed}).Run)
	n.Get("none-of-this-name")
	if _, err := a.cluster.Review(ctx, token, []string{ca.DefaultAudience}); err != nil {
		a.journal.log().Warn("review", "error", err)
	}
	a.done = func() bool {
		m, err := w.CoreV1().ConfigMaps("roles").Get(ctx, contract.RootConfigMap, metav1.GetOptions{})
		if err != nil || m.Data["root-cert.pem"] != pem(t) {
			return false
		}
		c, err := configurations.Get(ctx, name, metav1.GetOptions{})
		if err != nil || slices.ContainsFunc(c.Webhooks, func(h admission.MutatingWebhook) bool { return string(h.ClientConfig.CABundle) != pem(t) }) {
			return false
		}
		const writers = "--output=jsonpath={.items[*].status.parents[*].controllerName} {.items[*].status.ancestors[*].controllerName}"
		written := kubectl(t, statusless, "get", "--filename=-", writers)
		return closed(source.Synced()) && closed(followed.Synced()) && strings.Count(written, kube.ControllerName) == strings.Count(statusless, "kind: Service")
	}
	return a
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The chart's Deployment becomes ready and injects a pod. If it lacks a permission, its readiness contains the
// reason. It has one replica, so that all log lines are in one log.
func TestDeployment(t *testing.T) {
	w := enterWorld(t)
	manifest, err := chart.Manifest("pilot: {replicaCount: 1}")
	must(t, err)
	apply(t, manifest)
	log := func() string {
		return kubectl(t, "", "logs", "--namespace=outrider-system", "deployment/outriderd")
	}
	kubectl(t, "", "rollout", "status", "--namespace=outrider-system", "deployment/outriderd", "--timeout="+patience.String())
	w.namespace(t, "injected", map[string]string{"istio-injection": "enabled"})
	until(t, "the roots are in the new namespace", func() bool {
		m, err := w.CoreV1().ConfigMaps("injected").Get(t.Context(), contract.RootConfigMap, metav1.GetOptions{})
		return err == nil && strings.Contains(m.Data["root-cert.pem"], "BEGIN CERTIFICATE")
	}, log)
	kubectl(t, "", "wait", "--for=jsonpath={.webhooks[0].clientConfig.caBundle}", "--timeout="+patience.String(), "mutatingwebhookconfiguration/outrider-injector")
	t.Cleanup(func() {
		w.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.Background(), "outrider-injector", metav1.DeleteOptions{})
	})
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: app, namespace: injected}, spec: {containers: [{name: app, image: "test.outrider.dev/base:1", command: [sleep, 1h]}]}}`
	apply(t, pod)
	if got := kubectl(t, "", "get", "pod", "app", "--namespace=injected", "--output=jsonpath={.spec.containers[*].name} {.spec.initContainers[*].name}"); !strings.Contains(got, "outrider-proxy") {
		t.Errorf("containers: %s\n%s", got, log())
	}
	if text := log(); strings.Contains(text, `"level":"WARN"`) || strings.Contains(text, `"level":"ERROR"`) {
		t.Errorf("the log:\n%s", text)
	}
	besideAnotherInjector(t, w, log)

	must(t, w.RbacV1().ClusterRoleBindings().Delete(t.Context(), "outriderd-mesh", metav1.DeleteOptions{}))
	kubectl(t, "", "rollout", "restart", "--namespace=outrider-system", "deployment/outriderd")
	const want = `services is forbidden: User "system:serviceaccount:outrider-system:outriderd" cannot list resource "services" in API group "" at the cluster scope; the chart has the roles`
	var answer string
	until(t, "readiness names what is missing", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // time limit: one try of several
		defer cancel()
		pods, err := w.CoreV1().Pods("outrider-system").List(ctx, metav1.ListOptions{LabelSelector: "app=outriderd"})
		if err != nil {
			return false
		}
		answer = ""
		for _, pod := range pods.Items { // includes the previous pod, which stays until the new one is ready
			answer += readiness(ctx, pod.Status.PodIP)
		}
		return len(pods.Items) == 2 && strings.Contains(answer, want) && strings.Contains(answer, "200 OK: ready")
	}, func() string { return answer + "\n" + log() })
	apply(t, manifest)
	kubectl(t, "", "rollout", "status", "--namespace=outrider-system", "deployment/outriderd", "--timeout="+patience.String())
	kubectl(t, "", "delete", "deployment", "outriderd", "--namespace=outrider-system", "--cascade=foreground")
}

// readiness returns the body of the answer of outriderd's readiness endpoint, or the error.
func readiness(ctx context.Context, address string) string {
	question, err := http.NewRequestWithContext(ctx, "GET", "http://"+net.JoinHostPort(address, "15014")+"/ready", nil)
	if err != nil {
		return err.Error()
	}
	r, err := http.DefaultClient.Do(question)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return fmt.Sprintf("%s: %s %v\n", r.Status, text, err)
}
