package kube

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/test/buffer"
	"outrider.dev/test/chart"
	e2e "outrider.dev/test/e2e/world"
)

// A world is the cluster with an administrator's access.
type world struct {
	*kubernetes.Clientset
	config *api.Config
}

// enterWorld returns the world. It skips the test if this process does not run in a cluster.
func enterWorld(t *testing.T) world {
	t.Helper()
	if !e2e.Inside() {
		t.Skip("brings up a real cluster, as root: set OUTRIDER_E2E=1")
	}
	config, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	must(t, err)
	rest, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	must(t, err)
	rest.QPS = -1
	client, err := kubernetes.NewForConfig(rest)
	must(t, err)
	return world{client, config}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A journal is a log without escape sequences.
type journal struct{ buffer.Buffer }

func (j *journal) String() string { return strings.ReplaceAll(j.Buffer.String(), `\"`, `"`) }

func (j *journal) log() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// connect returns outriderd's view of the cluster. The function edit may change the kubeconfig, for example the user.
func (w world) connect(t *testing.T, j *journal, edit func(*api.Cluster, *api.AuthInfo)) *kube.Cluster {
	t.Helper()
	config := w.config.DeepCopy()
	current := config.Contexts[config.CurrentContext]
	if edit != nil {
		edit(config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo])
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, file))
	kube.LogClientGo(j.log())
	c, err := kube.Connect(kube.Options{Kubeconfig: file, Log: j.log()})
	must(t, err)
	return c
}

// as returns a change of a kubeconfig by which the administrator impersonates a service account.
func as(namespace, account string) func(*api.Cluster, *api.AuthInfo) {
	return func(_ *api.Cluster, a *api.AuthInfo) {
		a.Impersonate = "system:serviceaccount:" + namespace + ":" + account
		a.ImpersonateGroups = []string{"system:serviceaccounts", "system:authenticated"}
	}
}

// outriderd impersonates the service account of the chart.
var outriderd = as("outrider-system", "outriderd")

func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// undefine returns a function for t.Cleanup that deletes CustomResourceDefinitions. It does not use kubectl(t),
// because the test's context has ended when cleanups run.
func (w world) undefine(names ...string) func() {
	return func() {
		for _, name := range names {
			w.RESTClient().Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name).Do(context.Background())
		}
	}
}

// definition returns the CustomResourceDefinition of another mesh's kind, with an older version than v1.
func definition(group, kind, plural string) string {
	return strings.NewReplacer("peerauthentications", plural, "peerauthentication", strings.ToLower(kind), "PeerAuthentication", kind,
		"security.istio.io", group, "name: v1\n", "name: v1beta1\n").Replace(peerAuthentications)
}

// deployed applies the chart with these values, except the Deployment and the webhook configuration: the test itself
// acts as outriderd, with the permissions of the chart's roles.
func (w world) deployed(t *testing.T, values string) {
	t.Helper()
	text, err := chart.Manifest(values, "Deployment", "PodDisruptionBudget", "MutatingWebhookConfiguration")
	must(t, err)
	apply(t, text)
	w.allowed(t, own, "outriderd", authorization.ResourceAttributes{Namespace: own, Resource: "configmaps", Verb: "create"})
	for _, role := range []string{"outriderd", "outriderd-mesh"} {
		w.allowed(t, own, "outriderd", accessOf(w.roles(t, role)[0]))
	}
}

// namespace creates a namespace that is deleted with the test, and waits for the service account
// that its pods need.
func (w world) namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	w.emptyNamespace(t, name, labels)
	until(t, "the service account of "+name, func() bool {
		_, err := w.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, nothing)
}

// emptyNamespace creates a namespace that is deleted with the test, and does not wait for the service account. It
// retries, because a namespace of this name from an earlier test may still be terminating.
func (w world) emptyNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	var err error
	until(t, "the namespace "+name+" is made", func() bool {
		_, err = w.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		return !apierrors.IsAlreadyExists(err)
	}, func() string { return err.Error() })
	must(t, err)
	t.Cleanup(func() {
		w.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// patience is the time limit of a wait for the cluster. It is long, because Kubernetes retries the deletion of a
// namespace several times, with pauses of up to a minute.
const patience = 5 * time.Minute

// until polls until a condition holds. If a replica has stopped, or after [patience], it fails the test with the text
// that the function why returns. It is like process.Eventually, with a longer time limit.
func until(t *testing.T, what string, ok func() bool, why func() string, replicas ...*replica) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		began := time.Now()
		ended := slices.ContainsFunc(replicas, func(r *replica) bool { return closed(r.done) })
		switch {
		case ok():
			return
		case ended:
			t.Fatalf("a replica has ended, and never seen: %s\n%s", what, why())
		case time.Now().After(end):
			t.Fatalf("not within %v: %s\n%s", patience, what, why())
		}
		time.Sleep(max(10*time.Millisecond, time.Since(began))) // a pause as long as the check leaves processor time to the cluster
	}
}

// running runs a function in the background until the test ends. The channel is closed when the function has returned.
func running(t *testing.T, run func(context.Context) error) (ended <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return done
}

func nothing() string { return "" }

// These tests run in parallel, because they mostly wait for the cluster. They do not disturb one another: only one of
// them has replicas that use the shared authority, and none checks the status of routes.
func TestBesideEachOther(t *testing.T) {
	enterWorld(t).deployed(t, "features: {diagnosis: true}") // only once, because it removes rules that tests have added to the roles
	for name, test := range map[string]func(*testing.T){
		"tokens are reviewed":             tokensAreReviewed,
		"certificates end with their pod": certificatesEndWithTheirPod,
		"the mesh is whole over a gap":    theMeshIsWholeOverAGap,
		"diagnoses are events":            diagnosesAreEvents,
		"the cluster is the mesh":         theClusterIsTheMesh,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// TestNothingIsLeft removes everything that the tests have made, because another suite may use the cluster afterwards.
// It runs last, because its file is the last one of the package.
func TestNothingIsLeft(t *testing.T) {
	enterWorld(t).vacate(t)
}
