package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/check"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/report"
	"outrider.dev/test/chart"
	"outrider.dev/test/process"
)

// A command is the command outrider in a binary.
type command struct{ file string }

// outrider is the binary that was built with the images.
var outrider = command{root + "/bin/outrider"}

// run runs the command, checks its exit status, and returns its outputs.
func (c command) run(t *testing.T, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.file, args...)
	var out, errors strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errors
	if cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		t.Fatalf("outrider %s: %v; want status %d\n%s%s", strings.Join(args, " "), cmd.ProcessState, status, &out, &errors)
	}
	return out.String(), errors.String()
}

// checks runs "outrider check", and returns its checks by their IDs.
func (c command) checks(t *testing.T, status int, args ...string) map[string]check.Check {
	t.Helper()
	text, _ := c.run(t, status, append([]string{"check", "-o", "json"}, args...)...)
	var all []check.Check
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out := map[string]check.Check{}
	for _, c := range all {
		out[c.ID] = c
	}
	return out
}

// is fails the test unless each check with one of these IDs has the wanted result, and a reason that contains these
// words.
func is(t *testing.T, all map[string]check.Check, want check.Result, words string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if c, ok := all[id]; !ok || c.Result != want || !strings.Contains(c.Reason, words) {
			t.Errorf("check %s: %+v; want %s with %q", id, c, want, words)
		}
	}
}

// vacate removes the remains of control planes of other tests, and waits until all deletions are complete.
func (w world) vacate(t *testing.T) {
	t.Helper()
	text, err := chart.Manifest("{}")
	must(t, err)
	remove(t, text)
	definitions, err := chart.Definitions()
	must(t, err)
	for _, text := range definitions { // any order: each is a separate object
		remove(t, text)
	}
	remove(t, "{apiVersion: v1, kind: Namespace, metadata: {name: outrider-system}}")
	kubectl(t, "", "delete", "configmaps", "--all-namespaces", "--field-selector=metadata.name="+contract.RootConfigMap)
	withoutBundle(t)
	until(t, "what other tests have made is gone", func() bool { return len(w.ending(t)) == 0 },
		func() string { return strings.Join(w.ending(t), "\n") })
}

// objects returns the names of all objects in the cluster, except events and objects that the
// cluster creates for running pods.
func (w world) objects(t *testing.T) []string {
	t.Helper()
	config, err := clientcmd.NewDefaultClientConfig(*w.config, nil).ClientConfig()
	must(t, err)
	config.QPS = -1
	client, err := metadata.NewForConfig(config)
	must(t, err)
	lists, err := w.Discovery().ServerPreferredResources()
	must(t, err)
	names := map[string]bool{}
	for _, l := range lists {
		group, err := schema.ParseGroupVersion(l.GroupVersion)
		must(t, err)
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "events" || group.Group == "metrics.k8s.io" {
				continue
			}
			objects, err := client.Resource(group.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			must(t, err)
			for _, o := range objects.Items {
				names[fmt.Sprintf("%s.%s %s/%s", r.Name, group.Group, o.Namespace, o.Name)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ending returns the namespaces, pods and CustomResourceDefinitions that are being deleted, with their conditions
// or statuses.
func (w world) ending(t *testing.T) (all []string) {
	t.Helper()
	namespaces, err := w.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, o := range namespaces.Items {
		if o.DeletionTimestamp != nil {
			all = append(all, fmt.Sprintf("namespace %s: %+v", o.Name, o.Status.Conditions))
		}
	}
	pods, err := w.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, o := range pods.Items {
		if o.DeletionTimestamp != nil {
			all = append(all, fmt.Sprintf("pod %s/%s, since %s: %s", o.Namespace, o.Name, o.DeletionTimestamp, o.Status.Phase))
		}
	}
	raw, err := w.RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Do(t.Context()).Raw()
	must(t, err)
	var definitions metav1.PartialObjectMetadataList
	must(t, json.Unmarshal(raw, &definitions))
	for _, o := range definitions.Items {
		if o.DeletionTimestamp != nil {
			all = append(all, "definition "+o.Name)
		}
	}
	return all
}

// small are the flags that select the chart's profile with one replica, because the cluster has one node.
var small = []string{"--profile", "small"}

// TestInstall tests outrider install, check and uninstall on a real API server. It starts with a cluster without
// Outrider, and checks that uninstall leaves nothing. It is the first test, so that it does not have to wait for
// namespaces that other tests have deleted, which takes a minute.
func TestInstall(t *testing.T) {
	w := enterWorld(t)
	c := outrider
	w.vacate(t)
	t.Cleanup(func() { exec.Command(c.file, "uninstall", "--purge", "--force").Run() })
	with := func(args ...string) []string { return append(args, small...) }
	before := w.objects(t)

	t.Run("before it is installed, checks are red", func(t *testing.T) {
		is(t, c.checks(t, 1), check.Failed, "", "deployment", "webhook-ca", "root-certificates")
		is(t, c.checks(t, 1, "--pre", "--as=system:serviceaccount:default:default"), check.Failed, "the caller may not", "permissions")
		// A check for which the user lacks permission is skipped and does not fail.
		is(t, c.checks(t, 0, "--as=system:serviceaccount:default:default"), check.Skipped, "forbidden", "deployment", "replicas", "root-certificates", "webhook-ca", "webhook", "proxies")

		kubectl(t, "", "create", "clusterrole", "outriderd", "--verb=get", "--resource=pods")
		is(t, c.checks(t, 1, "--pre"), check.Failed, "ClusterRole outriderd", "leftovers")
		out, stderr := c.run(t, 1, with("install")...)
		if !strings.Contains(out, "leftovers") || !strings.Contains(stderr, "nothing was changed") {
			t.Errorf("install beside another installation:\n%s%s", out, stderr)
		}
		kubectl(t, "", "delete", "clusterrole", "outriderd")

		w.namespace(t, "guarded-install", map[string]string{"istio-injection": "enabled", "pod-security.kubernetes.io/enforce": "restricted"})
		guarded := c.checks(t, 1, "--pre", "--nodes", "--nodes-namespace=guarded-install")
		is(t, guarded, check.Failed, "guarded-install", "pod-security")
		is(t, guarded, check.Skipped, "namespace guarded-install refuses a pod with NET_ADMIN", "kernel")
		apply(t, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: app, namespace: guarded-install}, spec: {selector: {matchLabels: {app: app}},
			template: {metadata: {labels: {app: app}, annotations: {outrider.dev/capture: none}}, spec: {containers: [{name: app, image: none}]}}}}`)
		is(t, c.checks(t, 0, "--pre"), check.OK, "refused in guarded-install, where no workload needs it", "pod-security")
		kubectl(t, "", "delete", "namespace", "guarded-install", "--wait")
		if diff := cmp.Diff(before, w.objects(t)); diff != "" {
			t.Errorf("the checks have changed the cluster (-before +after):\n%s", diff)
		}
	})
	t.Run("checks are green where it can be installed", func(t *testing.T) {
		all := c.checks(t, 0, "--pre", "--nodes")
		for id, c := range all {
			if c.Result != check.OK && id != "cni" {
				t.Errorf("%s: %+v", id, c)
			}
		}
		is(t, all, check.OK, "proved: outbound ipv4, inbound ipv4", "kernel")
		is(t, all, check.Skipped, "not recognised", "cni") // network plugins are recognised by their DaemonSets, and this cluster has none
	})
	t.Run("pods that try capture are deleted", func(t *testing.T) { kernelPods(t, w, c, before) })
	t.Run("a dry run changes nothing", func(t *testing.T) {
		if text, _ := c.run(t, 0, with("install", "--dry-run")...); !strings.Contains(text, "kind: Deployment") {
			t.Errorf("it prints:\n%s", text)
		}
		if diff := cmp.Diff(before, w.objects(t)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
	t.Run("an installation that was killed is completed", func(t *testing.T) {
		killed(t, w, c, with("install")...)
		out, stderr := c.run(t, 0, with("install")...)
		if !strings.Contains(stderr, "was interrupted") || !strings.Contains(out, "0 failed") && strings.Contains(out, "failed") {
			t.Errorf("the second run:\n%s%s", out, stderr)
		}
	})
	t.Run("it works", func(t *testing.T) {
		all := c.checks(t, 0)
		is(t, all, check.OK, "", "deployment", "replicas", "crds", "root-certificates", "webhook-ca", "certificates", "webhook", "clock", "proxies", "versions")
		junit, _ := c.run(t, 0, "check", "-o", "junit")
		if !strings.Contains(junit, `failures="0"`) {
			t.Errorf("JUnit:\n%s", junit)
		}
	})
	t.Run("it can be looked at", func(t *testing.T) { looks(t, w, c) })
	t.Run("capture is tried on the node", func(t *testing.T) {
		all := c.checks(t, 0, "--nodes")
		is(t, all, check.OK, "proved: outbound ipv4, inbound ipv4", "kernel")
		is(t, all, check.OK, "", "deployment", "webhook")
	})
	t.Run("helm sees the release", func(t *testing.T) { helmSees(t, 2) })
	t.Run("installed again, its pods go on", func(t *testing.T) {
		pods := kubectl(t, "", "get", "pods", "-n", "outrider-system", "--output=jsonpath={.items[*].metadata.uid}")
		c.run(t, 0, with("install")...)
		if now := kubectl(t, "", "get", "pods", "-n", "outrider-system", "--output=jsonpath={.items[*].metadata.uid}"); now != pods {
			t.Errorf("pods were %s, and are %s", pods, now)
		}
		helmSees(t, 3)
	})
	t.Run("checks find what breaks", func(t *testing.T) { breaks(t, w, c) })
	t.Run("it is not removed below pods that need it", func(t *testing.T) {
		w.namespace(t, "meshed", nil)
		for name, status := range map[string]string{"app": "", "other": contract.Status + `: '{"revision":"canary"}'`} { // any order: independent pods
			apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: meshed, annotations: {%s}}, spec: {schedulerName: none, serviceAccountName: default,
				containers: [{name: app, image: none}, {name: %s, image: none}]}}`, name, status, contract.ProxyContainer))
		}
		out, stderr := c.run(t, 1, "uninstall", "--purge")
		if out != "meshed/app has a proxy\n" || !strings.Contains(stderr, "nothing was removed") || !strings.Contains(stderr, "the revision that stays") {
			t.Errorf("uninstall:\n%s%s", out, stderr)
		}
		kubectl(t, "", "delete", "pod", "app", "other", "-n", "meshed", "--force", "--grace-period=0")
		kubectl(t, "", "delete", "namespace", "meshed", "--wait")
		is(t, c.checks(t, 0), check.OK, "", "deployment", "webhook")
	})
	t.Run("nothing is left of it", func(t *testing.T) {
		c.run(t, 0, "uninstall", "--purge", "--dry-run")
		c.run(t, 0, "uninstall", "--purge")
		after := w.objects(t)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		c.run(t, 0, "uninstall", "--purge") // succeeds also if there is nothing to remove
	})
}

// kernelPods runs the check that tries capture in pods on the nodes, with an image that does not exist. It runs the
// check once to its end and once until Ctrl-C, and fails the test if a pod is left.
func kernelPods(t *testing.T, w world, c command, before []string) {
	t.Helper()
	missing := []string{"--pre", "--nodes", "--set=global.tag=none"}
	is(t, c.checks(t, 1, missing...), check.Failed, "has not the image outrider.dev/outrider-proxy:none", "kernel")
	pods := metav1.ListOptions{LabelSelector: "outrider.dev/check"}
	gone := func() bool {
		l, err := w.CoreV1().Pods("").List(t.Context(), pods)
		must(t, err)
		return len(l.Items) == 0
	}
	until(t, "the pod is gone", gone, nothing)
	watched, err := w.CoreV1().Pods("default").Watch(t.Context(), pods)
	must(t, err)
	defer watched.Stop()
	cmd := exec.CommandContext(t.Context(), c.file, append([]string{"check"}, missing...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	must(t, process.StartBound(cmd))
	<-watched.ResultChan() // the pod has been created
	must(t, cmd.Process.Signal(os.Interrupt))
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("%v: %s", cmd.ProcessState, &stderr)
	}
	until(t, "the pod is gone", gone, nothing)
	if diff := cmp.Diff(before, w.objects(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// killed runs a command, and kills it while the status of the release in Helm's record is pending.
func killed(t *testing.T, w world, c command, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watched, err := w.CoreV1().Secrets("outrider-system").Watch(ctx, metav1.ListOptions{LabelSelector: "owner=helm"})
	must(t, err)
	cmd := exec.Command(c.file, args...)
	cmd.Stderr = os.Stderr
	must(t, process.StartBound(cmd))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case e := <-watched.ResultChan():
			if s, ok := e.Object.(*corev1.Secret); ok && strings.HasPrefix(s.Labels["status"], "pending-") {
				cmd.Process.Kill()
				if err := <-ended; err == nil {
					t.Fatal("it ended before it was killed")
				}
				list, err := w.CoreV1().Secrets("outrider-system").List(ctx, metav1.ListOptions{LabelSelector: "owner=helm"})
				must(t, err)
				if len(list.Items) != 1 || !strings.HasPrefix(list.Items[0].Labels["status"], "pending-") {
					t.Fatalf("the release is %v: it was killed too late", list.Items)
				}
				return
			}
		case err := <-ended:
			t.Fatal(errors.Join(errors.New("it ended before its release was pending"), err))
		}
	}
}

// helmSees fails the test unless Helm's library reads the release, with this revision.
func helmSees(t *testing.T, revision int) {
	t.Helper()
	flags := kubeclient.NewFlags(installation.Namespace)
	helm := &action.Configuration{}
	must(t, helm.Init(flags, installation.Namespace, "", func(string, ...any) {}))
	list, err := action.NewList(helm).Run()
	must(t, err)
	if len(list) != 1 || list[0].Name != "outrider" || list[0].Version != revision || list[0].Info.Status != release.StatusDeployed {
		t.Errorf("helm list has %v; want outrider, revision %d, deployed", list, revision)
	}
}

// breaks damages an installation in several ways, and fails the test unless "outrider check" detects each damage.
func breaks(t *testing.T, w world, c command) {
	t.Helper()
	const kind, webhooks = "mutatingwebhookconfiguration", "outrider-injector"
	kubectl(t, "", "scale", "deployment", "outriderd", "-n", "outrider-system", "--replicas=0")
	kubectl(t, "", "wait", "--for=delete", "pods", "-n", "outrider-system", "-l", "app=outriderd", "--timeout="+patience.String())
	w.namespace(t, "checked", map[string]string{"istio-injection": "enabled"})
	all := c.checks(t, 1)
	is(t, all, check.Failed, "checked", "root-certificates", "webhook")
	is(t, all, check.Skipped, "no replica runs", "replicas", "proxies", "versions")

	bundle := kubectl(t, "", "get", kind, webhooks, "--output=jsonpath={.webhooks[0].clientConfig.caBundle}")
	kubectl(t, "", "patch", kind, webhooks, "--type=json", `--patch=[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
	is(t, c.checks(t, 1), check.Failed, "has no CA bundle", "webhook-ca")
	kubectl(t, "", "patch", kind, webhooks, "--type=json", `--patch=[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"`+bundle+`"}]`)

	kubectl(t, "", "scale", "deployment", "outriderd", "-n", "outrider-system", "--replicas=1")
	kubectl(t, "", "rollout", "status", "deployment", "outriderd", "-n", "outrider-system", "--timeout="+patience.String())
	until(t, "the roots are in the new namespace", func() bool {
		_, err := w.CoreV1().ConfigMaps("checked").Get(t.Context(), contract.RootConfigMap, metav1.GetOptions{})
		return err == nil
	}, nothing)
	is(t, c.checks(t, 0), check.OK, "", "root-certificates", "webhook", "webhook-ca", "pod-security")
	apply(t, istio)
	is(t, c.checks(t, 0), check.Warning, "istio-sidecar-injector", "other-injectors")
	kubectl(t, "", "delete", kind, "istio-sidecar-injector")
	kubectl(t, "", "delete", "namespace", "checked", "--wait")
}

// looks tests the commands that read the mesh from the replicas, by port forwarding.
func looks(t *testing.T, w world, c command) {
	t.Helper()
	var v report.Versions
	text, _ := c.run(t, 0, "version", "-o", "json")
	if err := json.Unmarshal([]byte(text), &v); err != nil || v.Problem != "" || len(v.ControlPlane) != 1 ||
		v.ControlPlane[0].Version.Version != v.Client.Version || v.ControlPlane[0].Version.Envoy != contract.EnvoyVersion || v.ControlPlane[0].Revision != "default" {
		t.Errorf("version: %v\n%s", err, text)
	}
	if out, stderr := c.run(t, 0, "proxy-status"); out != "no proxy is connected to outriderd\n" || stderr != "" {
		t.Errorf("proxy-status:\n%s%s", out, stderr)
	}
	w.namespace(t, "described", map[string]string{"istio-injection": "enabled"})
	until(t, "outriderd has the namespace's labels", func() bool {
		_, err := w.CoreV1().ConfigMaps("described").Get(t.Context(), contract.RootConfigMap, metav1.GetOptions{})
		return err == nil
	}, nothing)
	for name, more := range map[string]string{"meshed": "", "host": "hostNetwork: true, "} { // any order: each is a separate pod
		apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`, namespace: described},
			spec: {`+more+`schedulerName: none, serviceAccountName: default, containers: [{name: app, image: none, command: [/app]}]}}`)
	}
	for name, want := range map[string][]string{ // any order: each command is run alone
		"meshed": {"injected, revision default", "the policy is to inject", "start      outrider-init, outrider-proxy, app", "REDIRECT, by outrider-init", "the proxy does not run"},
		"host":   {"not injected", "(host-network)"},
	} {
		out, _ := c.run(t, 0, "describe", "pod", name, "-n", "described")
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("no %q in\n%s", w, out)
			}
		}
	}
	all := c.checks(t, 0, "--proxy", "-n", "described")
	is(t, all, check.Skipped, "", "proxy-connection", "proxy-config", "proxy-ready", "proxy-certificate", "proxy-tls", "proxy-version")
	if all["proxy-ready"].Object != "described/meshed" || !strings.Contains(all["proxy-ready"].Reason, "was not started") {
		t.Errorf("check --proxy: %+v", all)
	}
	if _, stderr := c.run(t, 1, "check", "--proxy", "host.described"); !strings.Contains(stderr, `no running pod "host.described" has a proxy`) {
		t.Errorf("check --proxy of a pod without one: %s", stderr)
	}
	checksOtherMeshes(t, c)
	statusPage(t, c)
	if text, _ := c.run(t, 0, "version"); !strings.Contains(text, "1 pod") {
		t.Errorf("version:\n%s", text)
	}
	kubectl(t, "", "delete", "pods", "--all", "-n", "described", "--force", "--grace-period=0")
	kubectl(t, "", "delete", "namespace", "described", "--wait")
}

// checksOtherMeshes creates an Istio object, which has no effect on pods with Outrider's proxy, and fails the test
// unless the check names the equivalent kind.
func checksOtherMeshes(t *testing.T, c command) {
	t.Helper()
	const id, routes = "other-meshes", "virtualservices.networking.istio.io"
	is(t, c.checks(t, 0), check.OK, "is without effect", id)
	apply(t, definition("networking.istio.io", "VirtualService", "virtualservices"))
	apply(t, `{apiVersion: networking.istio.io/v1beta1, kind: VirtualService, metadata: {name: web, namespace: described},
		spec: {hosts: [web], http: [{timeout: 2s, route: [{destination: {host: web}}]}]}}`)
	all := c.checks(t, 0)
	is(t, all, check.Warning, "has no effect on pods of Outrider", id)
	if found := all[id]; found.Object != "VirtualService described/web" || !strings.Contains(found.Hint, `"kind":"HTTPRoute"`) {
		t.Errorf("%+v", found)
	}
	is(t, c.checks(t, 0, "--pre"), check.Warning, "has no effect on pods of Outrider", id)
	kubectl(t, "", "delete", "crd", routes)
}

// statusPage reads the page that "outrider dashboard" serves, and ends the command by SIGINT, as Ctrl-C does.
func statusPage(t *testing.T, c command) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.file, "dashboard", "--browser=false")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, process.StartBound(cmd))
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	pod, page, _ := strings.Cut(strings.TrimSpace(line), "  ")
	res, err := http.Get(page)
	must(t, err)
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), "outriderd "+pod) {
		t.Errorf("%s: %s, %v:\n%s", line, res.Status, err, text)
	}
	must(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("dashboard after a signal: %v", err)
	}
}
