package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/mesh/foreign"
	"outrider.dev/internal/core/pod/inject/injectors"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// get returns one of the rendered objects by its key, which is "kind/name".
func get[T runtime.Object](t *testing.T, all map[string]runtime.Object, key string) T {
	t.Helper()
	o, ok := all[key].(T)
	if !ok {
		t.Fatalf("no %s", key)
	}
	return o
}

func deployment(t *testing.T, v map[string]any) *appsv1.Deployment {
	t.Helper()
	all := objects(t, v)
	for key := range all { // any order: at most one matches
		if strings.HasPrefix(key, "Deployment/") {
			return get[*appsv1.Deployment](t, all, key)
		}
	}
	t.Fatal("no Deployment")
	return nil
}

// The webhook in the chart equals the one that "outriderd webhook-config" prints for the same options.
func TestWebhookIsThatOfTheCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		values string
		want   webhook.ConfigurationOptions
		policy admission.FailurePolicyType
	}{
		"by default":           {"{}", webhook.ConfigurationOptions{}, admission.Fail},
		"by our labels":        {"sidecarInjectorWebhook: {ownLabels: 'on'}", webhook.ConfigurationOptions{OwnLabels: true}, admission.Fail},
		"by our labels, on":    {"sidecarInjectorWebhook: {ownLabels: on, enableNamespacesByDefault: true}", webhook.ConfigurationOptions{OwnLabels: true, ByDefault: true}, admission.Fail},
		"without labels":       {"sidecarInjectorWebhook: {enableNamespacesByDefault: true, failurePolicy: Ignore}", webhook.ConfigurationOptions{ByDefault: true}, admission.Ignore},
		"of a revision":        {"revision: canary", webhook.ConfigurationOptions{Revision: "canary", Place: webhook.Place{Service: "outriderd-canary"}}, admission.Fail},
		"of a revision 1-2":    {"revision: '1-2'", webhook.ConfigurationOptions{Revision: "1-2", Place: webhook.Place{Service: "outriderd-1-2"}}, admission.Fail},
		"of the revision 2":    {"revision: '2'", webhook.ConfigurationOptions{Revision: "2", Place: webhook.Place{Service: "outriderd-2"}}, admission.Fail},
		"of a named default":   {"revision: default", webhook.ConfigurationOptions{}, admission.Fail},
		"with another mesh":    {"sidecarInjectorWebhook: {ownLabels: 'off'}", webhook.ConfigurationOptions{}, admission.Fail},
		"of a profile, beside": {"profile", webhook.ConfigurationOptions{OwnLabels: true}, admission.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			v := profile(t, "beside-another-mesh")
			if tt.values != "profile" {
				v = values(t, tt.values)
			}
			want, err := webhook.Configuration(tt.want)
			if err != nil {
				t.Fatal(err)
			}
			got := get[*admission.MutatingWebhookConfiguration](t, objects(t, v), "MutatingWebhookConfiguration/"+want.Name)
			for i := range want.Webhooks {
				want.Webhooks[i].FailurePolicy = &tt.policy
			}
			if d := cmp.Diff(want.Webhooks, got.Webhooks); d != "" {
				t.Errorf("(-command +chart):\n%s", d)
			}
			for key, value := range want.Labels { // any order: the labels are compared one by one
				if got.Labels[key] != value {
					t.Errorf("label %s=%s, want %s", key, got.Labels[key], value)
				}
			}
		})
	}
}

// rules returns all permissions, each as a scope, a verb and a resource with its names.
func rules(all map[string]runtime.Object) []string {
	var out []string
	add := func(scope string, list []rbac.PolicyRule) {
		for _, r := range list {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					out = append(out, strings.TrimSpace(fmt.Sprint(scope, " ", verb, " ", resource, " ", strings.Join(r.ResourceNames, ","))))
				}
			}
		}
	}
	for _, o := range all { // any order: sorted below
		switch o := o.(type) {
		case *rbac.ClusterRole:
			add("cluster:", o.Rules)
		case *rbac.Role:
			add("namespace:", o.Rules)
		}
	}
	slices.Sort(out)
	return out
}

// Each role is bound to the only service account, and has no wildcard.
func TestRolesAreBound(t *testing.T) {
	all := objects(t, nil)
	roles, bound := []string{}, []string{}
	for key, o := range all { // any order: sorted below
		switch o := o.(type) {
		case *rbac.ClusterRole, *rbac.Role:
			roles = append(roles, key)
		case *rbac.ClusterRoleBinding:
			bound = append(bound, o.RoleRef.Kind+"/"+o.RoleRef.Name)
		case *rbac.RoleBinding:
			bound = append(bound, o.RoleRef.Kind+"/"+o.RoleRef.Name)
		}
	}
	slices.Sort(roles)
	slices.Sort(bound)
	if d := cmp.Diff(roles, bound); d != "" || len(roles) != 5 {
		t.Errorf("(-roles +bound):\n%s", d)
	}
	for _, rule := range rules(all) {
		if strings.Contains(rule, "*") {
			t.Error(rule)
		}
	}
}

// A feature that is off has no permissions, and outriderd gets the flag that turns it off.
func TestPermissionsGoWithTheirFeatures(t *testing.T) {
	before := rules(objects(t, nil))
	for text, tt := range map[string]struct {
		flag    string
		removed string // pattern that each removed rule must match
		some    int
	}{
		"features: {gatewayRoutes: false}":                      {"--skip-kind=httproutes", "httproutes|grpcroutes|referencegrants|customresourcedefinitions", 5},
		"features: {policies: false}":                           {"--skip-kind=authorizationpolicies", "peerauthentications|authorizationpolicies|customresourcedefinitions", 4},
		"features: {hosts: false}":                              {"--skip-kind=hosts", "hosts|customresourcedefinitions|^namespace: (create|get|delete|list) configmaps$", 6},
		"features: {backendPolicies: false}":                    {"--skip-kind=backendpolicies", "backendpolicies|xbackendtrafficpolicies|customresourcedefinitions", 8},
		"features: {otherMeshes: false}":                        {"--skip-kind=ignored", ".", 30},
		"features: {injection: false}":                          {"--webhook=off", "mutatingwebhookconfigurations", 4},
		"global: {caAddress: 'csr.cert-manager.svc:443'}":       {"--serving-certificate=secret:outriderd-tls", "^namespace: .* (secrets outrider-ca|configmaps)$", 8},
		"authority: {trustBundle: 'off'}":                       {"--trust-bundle=off", "clustertrustbundles|signers|nodes", 5},
		"authority: {trustBundle: 'on'}":                        {"--trust-bundle=on", "nodes$", 2},
		"authority: {secretName: cacerts}":                      {"--source=kubernetes", "^namespace: .* secrets outrider-ca", 4},
		"sidecarInjectorWebhook: {ownLabels: 'on'}":             {"--own-labels=on", "^cluster: (list|watch) mutatingwebhookconfigurations$", 2},
		"authority: {secretName: ''}\npilot: {replicaCount: 1}": {"--state=/var/lib/outrider", "^namespace: ", 9},
	} {
		t.Run(text, func(t *testing.T) {
			all := objects(t, values(t, text))
			after := rules(all)
			var removed []string
			for _, rule := range before {
				if !slices.Contains(after, rule) {
					removed = append(removed, rule)
					if !regexp.MustCompile(tt.removed).MatchString(rule) {
						t.Errorf("removed: %s", rule)
					}
				}
			}
			if len(removed) < tt.some {
				t.Errorf("removed: %q", removed)
			}
			if args := get[*appsv1.Deployment](t, all, "Deployment/outriderd").Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, tt.flag) {
				t.Errorf("no %s in %q", tt.flag, args)
			}
		})
	}
	none := objects(t, values(t, "features: {injection: false, gatewayRoutes: false, policies: false, hosts: false, backendPolicies: false, otherMeshes: false}"))
	for _, rule := range rules(none) {
		if strings.Contains(rule, "customresourcedefinitions") || strings.Contains(rule, "webhook") {
			t.Error(rule)
		}
	}
	if none["MutatingWebhookConfiguration/outrider-injector"] != nil {
		t.Error("a webhook without injection")
	}
}

// Diagnosis is off by default. If it is on, it needs another role, and the name of its Lease in the rule for
// Leases.
func TestPermissionsOfDiagnosis(t *testing.T) {
	for text, leases := range map[string]string{"": "outrider-route-status,outrider-diagnosis", ", gatewayRoutes: false, backendPolicies: false": "outrider-diagnosis"} { // any order: the cases are independent
		off, on := objects(t, values(t, "features: {diagnosis: false"+text+"}")), objects(t, values(t, "features: {diagnosis: true"+text+"}\nserve: {slowStart: 45s}"))
		before := rules(off)
		var added []string
		for _, rule := range rules(on) {
			if !slices.Contains(before, rule) && (!strings.Contains(rule, "leases") || strings.Contains(rule, "outrider-diagnosis")) {
				added = append(added, rule)
			}
		}
		want := []string{"cluster: create events", "cluster: get events", "cluster: get pods", "cluster: get pods/log", "cluster: list events", "cluster: patch events",
			"namespace: get leases " + leases, "namespace: update leases " + leases}
		if d := cmp.Diff(want, added); d != "" {
			t.Errorf("(-want +added):\n%s", d)
		}
		if !slices.Contains(rules(on), "namespace: create leases") {
			t.Error("no Lease may be made")
		}
		if b := get[*rbac.ClusterRoleBinding](t, on, "ClusterRoleBinding/outriderd-diagnosis"); b.RoleRef.Name != "outriderd-diagnosis" || off["ClusterRole/outriderd-diagnosis"] != nil {
			t.Errorf("%+v", b)
		}
		args := func(all map[string]runtime.Object) []string {
			return get[*appsv1.Deployment](t, all, "Deployment/outriderd").Spec.Template.Spec.Containers[0].Args
		}
		if !slices.Contains(args(on), "--diagnose") || !slices.Contains(args(on), "--slow-start=45s") || strings.Contains(fmt.Sprint(args(off)), "--diagnose") {
			t.Errorf("%q, off %q", args(on), args(off))
		}
	}
	if d := cmp.Diff(rules(objects(t, values(t, "features: {diagnosis: false}"))), rules(objects(t, nil))); d != "" {
		t.Errorf("it is on by default (-off +default):\n%s", d)
	}
}

// The role may read each kind that is reported as ignored.
func TestRoleHasIgnoredKinds(t *testing.T) {
	all := strings.Join(rules(objects(t, nil)), "\n") + "\n"
	for definition := range foreign.Resources() { // any order: the kinds are independent
		resource, _, _ := strings.Cut(definition, ".")
		for _, want := range []string{"cluster: list " + resource + "\n", "cluster: watch " + resource + "\n"} {
			if !strings.Contains(all, want) {
				t.Errorf("no rule %q", want)
			}
		}
		if !strings.Contains(all, definition) {
			t.Errorf("the definition %s may not be read", definition)
		}
	}
}

// The control plane meets the restricted Pod Security Standard. During an update, its number of pods does not
// decrease.
func TestDeployment(t *testing.T) {
	d := deployment(t, nil)
	if *d.Spec.Replicas != 2 || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%+v", d.Spec.Strategy)
	}
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil {
		t.Errorf("%+v", s)
	}
	if s := pod.SecurityContext; !*s.RunAsNonRoot || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v", s)
	}
	if c.StartupProbe.HTTPGet.Path != "/live" || c.LivenessProbe.HTTPGet.Path != "/live" || c.ReadinessProbe.HTTPGet.Path != "/ready" {
		t.Error("probes")
	}
	if len(pod.TopologySpreadConstraints) != 2 {
		t.Errorf("%+v", pod.TopologySpreadConstraints)
	}
	for _, set := range []map[string]string{d.Spec.Selector.MatchLabels, pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels} {
		for key, value := range set { // any order: the values are compared one by one
			if d.Spec.Template.Labels[key] != value {
				t.Errorf("the pod has no label %s=%s", key, value)
			}
		}
	}
	all := objects(t, nil)
	if a := get[*corev1.ServiceAccount](t, all, "ServiceAccount/outriderd"); *a.AutomountServiceAccountToken || !*pod.AutomountServiceAccountToken {
		t.Error("the token is mounted by the Deployment alone")
	}
	if p := get[*policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget/outriderd"); *p.Spec.MaxUnavailable != intstr.FromInt32(1) {
		t.Errorf("%+v", p.Spec)
	}
}

// The charts of two revisions have no object in common.
func TestRevisionsShareNothing(t *testing.T) {
	canary := objects(t, values(t, "revision: canary\nmonitoring: {dashboard: {enabled: true}}\nglobal: {networkPolicy: {enabled: true}}"))
	for key := range objects(t, values(t, "monitoring: {dashboard: {enabled: true}}\nglobal: {networkPolicy: {enabled: true}}")) { // any order: the keys are looked up one by one
		if canary[key] != nil {
			t.Errorf("both have %s", key)
		}
	}
	args := get[*appsv1.Deployment](t, canary, "Deployment/outriderd-canary").Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--name=outriderd-canary.outrider-system.svc", "--control-plane=outriderd-canary.outrider-system.svc:15012"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
}

// Each option has an effect on the rendered objects.
func TestOptions(t *testing.T) {
	for text, want := range map[string]string{
		"global: {hub: registry.example/a, tag: '7'}": "image: registry.example/a/outriderd:7",
		"global: {tag: 1.5}":                          "image: outrider.dev/outriderd:1.5",
		"pilot: {tag: '8'}":                           "image: outrider.dev/outriderd:8",
		"pilot: {image: 'registry.example/d@sha256:" + strings.Repeat("a", 64) + "'}":                                  "image: registry.example/d@sha256:" + strings.Repeat("a", 64),
		"global: {imagePullSecrets: [one, two]}":                                                                       "imagePullSecrets:\n      - name: one\n      - name: two",
		"global: {imagePullPolicy: Always}":                                                                            "imagePullPolicy: Always",
		"global: {priorityClassName: high}":                                                                            "priorityClassName: high",
		"pilot: {nodeSelector: {disk: ssd}}":                                                                           "disk: ssd",
		"pilot: {tolerations: [{key: infra, operator: Exists}]}":                                                       "key: infra",
		"pilot: {affinity: {podAntiAffinity: {}}}":                                                                     "podAntiAffinity: {}",
		"pilot: {topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}":      "topologyKey: rack",
		"pilot: {podLabels: {team: mesh}, podAnnotations: {note: a}}":                                                  "team: mesh",
		"pilot: {deploymentAnnotations: {reloader: 'true'}, deploymentLabels: {x: z}}":                                 "reloader: \"true\"",
		"pilot: {env: {GOGC: 50, HTTPS_PROXY: 'http://proxy:80'}}":                                                     "name: GOGC\n          value: \"50\"",
		"pilot: {env: {OUTRIDER_FIRST_USE_TIMEOUT: 3s}}":                                                               "value: 3s",
		"pilot: {envVarFrom: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}":                               "secretKeyRef:",
		"pilot: {extraContainerArgs: ['--webhook-client-ca=/etc/a b: #']}":                                             "- '--webhook-client-ca=/etc/a b: #'",
		"pilot: {volumes: [{name: clients, secret: {secretName: c}}], volumeMounts: [{name: clients, mountPath: /c}]}": "secretName: c",
		"pilot: {resources: {limits: {memory: 9Gi}}}":                                                                  "memory: 9Gi",
		"pilot: {seccompProfile: {type: Localhost, localhostProfile: a.json}}":                                         "localhostProfile: a.json",
		"pilot: {keepaliveMaxServerConnectionAge: 5m}":                                                                 "--max-connection-age=5m",
		"authority: {certificateLife: 2h, maxCertificateLife: 3h, rootSpread: 1h}":                                     "--root-spread=1h",
		"global: {caAddress: 'csr:443'}\nauthority: {rootConfigMap: roots}":                                            "--ca-roots=roots",
		"authority: {secretName: other}":                                                                               "name: OUTRIDER_CA_SECRET\n          value: other",
		"meshConfig: {meshMTLS: {minProtocolVersion: TLSV1_3}}":                                                        "outrider.dev/telemetry: ",
		"meshConfig: {trustDomain: example.org}":                                                                       "--trust-domain=example.org",
		"global: {proxy: {clusterDomain: corp.local}}":                                                                 "--domain=corp.local",
		"serve: {networks: ['10.0.0.0/8'], names: [a.example]}":                                                        "--network=10.0.0.0/8",
		"serve: {proxiesPerAddress: 100000}":                                                                           "--proxies-per-address=100000",
		"serve: {resolveImages: true, logLevel: debug}":                                                                "--resolve-images",
		"serve: {resolveImages: true, registryNetworks: ['10.0.0.0/8']}":                                               "--registry-network=10.0.0.0/8",
		"authority: {secretName: ''}\npilot: {replicaCount: 1}":                                                        "type: Recreate",
		"pilot: {rollingMaxSurge: 50%}":                                                                                "maxSurge: 50%",
	} {
		out, err := yaml.Marshal(deployment(t, values(t, text)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: no %q in\n%s", text, want, out)
		}
	}
	all := objects(t, values(t, `
global: {networkPolicy: {enabled: true}, defaultPodDisruptionBudget: {enabled: false}}
pilot: {autoscaleEnabled: true, memory: {targetAverageUtilization: 70}, autoscaleBehavior: {scaleDown: {stabilizationWindowSeconds: 60}}, serviceAnnotations: {a: b}, serviceAccountAnnotations: {a: b}, sidecarInjectorWebhookAnnotations: {a: b}, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}
`))
	for _, want := range []string{"NetworkPolicy/outriderd", "HorizontalPodAutoscaler/outriderd"} {
		if all[want] == nil {
			t.Errorf("no %s", want)
		}
	}
	if all["PodDisruptionBudget/outriderd"] != nil || get[*appsv1.Deployment](t, all, "Deployment/outriderd").Spec.Replicas != nil {
		t.Error("a PodDisruptionBudget that is off, or replicas beside an autoscaler")
	}
	p := get[*policyv1.PodDisruptionBudget](t, objects(t, values(t, "pilot: {pdb: {minAvailable: 0}}")), "PodDisruptionBudget/outriderd")
	if p.Spec.MaxUnavailable != nil || p.Spec.MinAvailable.IntValue() != 0 {
		t.Errorf("%+v", p.Spec)
	}
}

// outriderd has all flags that the chart sets.
func TestFlagsExist(t *testing.T) {
	help, err := exec.Command("go", "run", "../cmd/outriderd", "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	for _, text := range []string{
		"{}", "revision: canary", "features: {injection: false, hosts: false, diagnosis: true}",
		"authority: {maxCertificateLife: 48h, rootSpread: 1h}\nmeshConfig: {trustDomain: a}\nserve: {networks: ['10.0.0.0/8'], names: [a], resolveImages: true, registryNetworks: ['10.0.0.0/8']}",
	} {
		for _, arg := range deployment(t, values(t, text)).Spec.Template.Spec.Containers[0].Args[1:] {
			name, _, _ := strings.Cut(arg, "=")
			if !regexp.MustCompile(`(?m)^ +` + name + `\b`).Match(help) {
				t.Errorf("outriderd serve has no %s", name)
			}
		}
	}
}

// The DaemonSet is off by default. During an update, its old and new pods overlap. They mount host
// directories at the paths that the runtime uses too, and use only flags that the command has.
func TestNodes(t *testing.T) {
	for key := range objects(t, nil) { // any order: each object is checked
		if strings.Contains(key, "outrider-node") {
			t.Errorf("%s is there by default", key)
		}
	}
	all := objects(t, values(t, "node: {enabled: true, runtimeHandlers: [fast], runtimeConfig: /etc/k3s/config.toml, metricsPort: 15030}"))
	set := get[*appsv1.DaemonSet](t, all, "DaemonSet/outrider-node").Spec
	pod := set.Template.Spec
	if u := set.UpdateStrategy.RollingUpdate; u.MaxSurge.IntValue() != 1 || u.MaxUnavailable.IntValue() != 0 || !pod.HostNetwork || pod.HostPID || len(pod.Containers) != 2 {
		t.Errorf("update %v, %d containers", u, len(pod.Containers))
	}
	help, err := exec.Command("go", "run", "../cmd/outrider-node", "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	for _, c := range pod.Containers {
		propagated := map[string]corev1.MountPropagationMode{}
		for _, m := range c.VolumeMounts {
			if m.MountPropagation != nil {
				propagated[m.MountPath] = *m.MountPropagation
			}
		}
		want := map[string]corev1.MountPropagationMode{"/run/outrider": corev1.MountPropagationBidirectional, "/run/netns": corev1.MountPropagationHostToContainer, "/var/run/netns": corev1.MountPropagationHostToContainer}
		if diff := cmp.Diff(want, propagated); diff != "" {
			t.Errorf("mounts of %s (-want +got):\n%s", c.Name, diff)
		}
		if !slices.Contains(c.Args, "--metrics-address=:15030") {
			t.Errorf("no metrics: %q", c.Args)
		}
		for _, arg := range c.Args[1:] {
			name, _, _ := strings.Cut(arg, "=")
			if !regexp.MustCompile(`(?m)^ +` + name + `\b`).Match(help) {
				t.Errorf("outrider-node serve has no %s", name)
			}
		}
	}
	if rules := get[*rbac.ClusterRole](t, all, "ClusterRole/outrider-node").Rules; len(rules) != 1 || !slices.Equal(rules[0].Verbs, []string{"get", "patch"}) || !slices.Equal(rules[0].Resources, []string{"nodes"}) {
		t.Errorf("it may %v", rules)
	}
	// The control plane watches the nodes if it also injects pods.
	for text, want := range map[string]bool{"node: {enabled: true}": true, "": false, "node: {enabled: true}\nfeatures: {injection: false}": false} { // any order: each is a case
		all := objects(t, values(t, text))
		follows := slices.Contains(get[*appsv1.Deployment](t, all, "Deployment/outriderd").Spec.Template.Spec.Containers[0].Args, "--nodes")
		if may := all["ClusterRole/outriderd-nodes"] != nil && all["ClusterRoleBinding/outriderd-nodes"] != nil; follows != want || may != want {
			t.Errorf("%q: --nodes is given: %t, and it may: %t", text, follows, may)
		}
	}
	job := get[*batchv1.Job](t, all, "Job/outrider-node-leave")
	if job.Annotations["helm.sh/hook"] != "pre-delete" || !slices.Contains(job.Spec.Template.Spec.Containers[0].Args, "--daemonset=outrider-system/outrider-node") {
		t.Errorf("before the release is deleted: %v %v", job.Annotations, job.Spec.Template.Spec.Containers[0].Args)
	}
	all = objects(t, values(t, "revision: canary\nnode: {enabled: true, standby: false, nriPluginDir: '', image: 'r.example/n@sha256:00'}"))
	pod = get[*appsv1.DaemonSet](t, all, "DaemonSet/outrider-node-canary").Spec.Template.Spec
	if len(pod.Containers) != 1 || pod.Containers[0].Image != "r.example/n@sha256:00" || !slices.Contains(pod.Containers[0].Args, "--nri-plugin-dir=") {
		t.Errorf("containers %+v", pod.Containers)
	}
}

// Other injectors are found by the labels with which their webhooks select pods. The chart's own webhook must
// not be among them.
func TestOurWebhookIsNoOtherInjector(t *testing.T) {
	c := get[*admission.MutatingWebhookConfiguration](t, objects(t, nil), "MutatingWebhookConfiguration/outrider-injector")
	if others := injectors.Others([]admission.MutatingWebhookConfiguration{*c}); len(others) > 0 {
		t.Errorf("%q", others)
	}
}

// The PodMonitor of the proxies gets the metrics of the agent, on which alerts are, and those of Envoy, each of them once.
func TestPodMonitorAsksTheAgent(t *testing.T) {
	const agent, port = "path: /metrics/agent\n", "replacement: '$1:15020'"
	for options, wanted := range map[string]map[string]int{ // any order: each is one rendering
		"": {agent: 1, "path: /stats/prometheus\n": 1, port: 1},
		"telemetry: {v2: {prometheus: {enabled: true}}}\n": {agent: 0, "path: /stats/prometheus\n": 1, port: 1},
	} {
		files, err := render(t, values(t, options+"monitoring: {podMonitor: {enabled: true}}"))
		if err != nil {
			t.Fatal(err)
		}
		text := files["outrider/templates/monitoring.yaml"]
		for part, n := range wanted { // any order: each is counted
			if got := strings.Count(text, part); got != n {
				t.Errorf("with %q: %q %d times, want %d:\n%s", options, part, got, n, text)
			}
		}
	}
}

// Alerts and the dashboard use only metrics that there are, and codes of reviews that exist. The agent's and the node's
// are all in alerts.
func TestMonitoringNamesWhatThereIs(t *testing.T) {
	known := map[string]bool{}
	for _, file := range []string{"controlplane/metrics.go", "agent/proxy/capture.go", "node/daemon/metrics.go"} {
		source, err := os.ReadFile("../internal/core/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(outrider(?:d|_agent|_node)_[a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
			known[m[1]] = true
		}
	}
	options := values(t, "node: {enabled: true, metricsPort: 9464}\nmonitoring: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}")
	if dashboard := configMap(t, options, "outriderd-dashboard").Data["outrider.json"]; !json.Valid([]byte(dashboard)) {
		t.Error("the dashboard is no JSON")
	}
	files, err := render(t, options)
	if err != nil {
		t.Fatal(err)
	}
	text := files["outrider/templates/monitoring.yaml"]
	for _, want := range []string{"expr: outrider_agent_capture_in_place == 0\n", "outrider_agent_capture_unproved_seconds > ", "outrider_node_captures_not_in_place > 0", "'$1:9464'", "'[$1]:9464'"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	used := regexp.MustCompile(`outrider(?:d|_agent|_node)_[a-z_]+`).FindAllString(text, -1)
	if len(used) < 20 || len(known) < 20 {
		t.Fatalf("%d metrics used, %d known", len(used), len(known))
	}
	for _, name := range used {
		if !known[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("no metric %s", name)
		}
	}
	codes := regexp.MustCompile(`code=~\\?"([a-z|-]+)`).FindStringSubmatch(text)
	want := []verdict.Code{verdict.InvalidAnnotation, verdict.PodSecurity, verdict.NoMechanism, verdict.InvalidGraph, verdict.InvalidOverride, verdict.TooLarge, verdict.ImageRefused, verdict.PortConflict, verdict.VolumeConflict, verdict.MountConflict}
	var names []string
	for _, code := range want {
		names = append(names, string(code))
	}
	if codes == nil || codes[1] != strings.Join(names, "|") {
		t.Errorf("codes %q, want %q", codes, names)
	}
}
