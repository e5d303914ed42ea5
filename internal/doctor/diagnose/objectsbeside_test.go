package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// The scheduler counts nodes; a table of nodes, and the volume's node affinity, name those that it means.
func TestNodesBehindACount(t *testing.T) {
	const (
		pod = `apiVersion: v1
kind: Pod
metadata: {name: queue-0, namespace: jobs, creationTimestamp: "2026-03-02T09:00:00Z"}
spec: {containers: [{name: app, image: r.example/app:1}], volumes: [{name: d, persistentVolumeClaim: {claimName: d-queue-0}}]}
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, lastTransitionTime: "2026-03-02T09:00:00Z", message: '0/3 nodes are available: {counts}.'}]
`
		volume   = "2 node(s) had volume node affinity conflict, 1 node(s) were unschedulable"
		table    = "$ kubectl get nodes -L topology.kubernetes.io/zone\nNAME   STATUS   ROLES   AGE   VERSION   ZONE\nn1   Ready   <none>   9d   v1.34.1   east\nn2   Ready   <none>   9d   v1.34.1   east\nn3   {n3}   <none>   9d   v1.34.1   west\n"
		cordoned = "Ready,SchedulingDisabled"
		pv       = "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv-7}\nspec:\n  claimRef: {namespace: jobs, name: d-queue-0}\n  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: {key}, operator: In, values: [{value}]}]}]}}\n"
	)
	at := func(status string) string { return strings.Replace(table, "{n3}", status, 1) }
	of := func(key, value string) string { return strings.NewReplacer("{key}", key, "{value}", value).Replace(pv) }
	zone := of("topology.kubernetes.io/zone", "west")
	for name, c := range map[string]struct{ counts, nodes, volume, says, do string }{ // in any order: subtests
		"the only node is cordoned":      {volume, at(cordoned), zone, "its volume can be used in zone west alone, where n3 is cordoned", "uncordon n3"},
		"the only node does not answer":  {volume, at("NotReady"), zone, "its volume can be used in zone west alone, where n3 is NotReady", "bring back n3"},
		"no node is there":               {volume, at("Ready"), of("topology.kubernetes.io/zone", "north"), "its volume can be used in zone north alone, where no node is", "add a node in zone north"},
		"a node is free":                 {"2 node(s) had volume node affinity conflict, 1 Insufficient cpu", at("Ready"), zone, "its volume can be used in zone west alone (n3)", "keeps the pod off"},
		"a disk of one node":             {volume, at(cordoned), of("kubernetes.io/hostname", "n3"), "its volume can be used in hostname n3 alone, where n3 is cordoned", "uncordon n3"},
		"a description of the volume":    {volume, at(cordoned), "Claim:  jobs/d-queue-0\nNode Affinity:\n  Required Terms:\n    Term 0:  topology.kubernetes.io/zone in [west]\n", "its volume can be used in zone west alone, where n3 is cordoned", "uncordon n3"},
		"a volume of another claim":      {"2 node(s) had volume node affinity conflict", at(cordoned), strings.Replace(zone, "d-queue-0", "d-queue-1", 1), "", ""},
		"no column with the zone":        {"2 node(s) had volume node affinity conflict", "NAME   STATUS   ROLES   AGE   VERSION\nn3   Ready   <none>   9d   v1.34.1\n", zone, "", ""},
		"a cordon alone":                 {"2 Insufficient memory, 1 node(s) were unschedulable", at(cordoned), "", "n3 is cordoned", "uncordon"},
		"a taint of a node that is away": {"2 Insufficient memory, 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }", at("NotReady"), "", "n3 is NotReady", "bring back"},
		"a cordon that is not meant":     {"3 Insufficient memory", at(cordoned), "", "", ""},
		"a description of the node":      {volume, "Name:               n3\nRoles:              <none>\nLabels:             a=b\n                    topology.kubernetes.io/zone=west\nTaints:             node.kubernetes.io/unschedulable:NoSchedule\nUnschedulable:      true\n", zone, "its volume can be used in zone west alone, where n3 is cordoned", "uncordon n3"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pod.yaml": strings.Replace(pod, "{counts}", c.counts, 1), "nodes.txt": c.nodes}
			if c.volume != "" {
				files["pv"+map[bool]string{true: ".yaml", false: ".txt"}[strings.HasPrefix(c.volume, "---")]] = c.volume
			}
			r := diagnoseFiles(t, files)
			_, says, _ := strings.Cut(r.Sentence, "; ")
			f := r.Findings[0]
			if says != c.says || f.Code != "not-scheduled" || !strings.Contains(f.Remedy.Sentence, c.do) || c.says != "" && f.Confidence != result.Likely {
				t.Errorf("%s: %s", r.Sentence, f.Remedy.Sentence)
			}
		})
	}
}

// A pod of which only a line is known is on a node whose line says that it does not answer.
func TestNodeOfALine(t *testing.T) {
	const head = "$ kubectl get pods -o wide\nNAME                     READY   STATUS        RESTARTS   AGE   IP          NODE   NOMINATED NODE   READINESS GATES\n"
	row := func(name, status, node string) string {
		return name + "   1/1     " + status + "   0   9d   10.1.0.7   " + node + "   <none>   <none>\n"
	}
	const away, well = "n1     NotReady   <none>   9d   v1.34.1\n", "n1     Ready      <none>   9d   v1.34.1\n"
	for name, c := range map[string]struct{ text, says string }{ // in any order: subtests
		"its deletion waits":    {head + row("cart-7d6f8d5d49-6zk2c", "Terminating", "n1") + row("cart-7d6f8d5d49-r4vpn", "Running", "n2") + "\n" + away, "node n1 is NotReady: the pod was marked for deletion, which waits for that node to answer; cart-7d6f8d5d49-r4vpn of the same workload runs on n2"},
		"the other is another":  {head + row("cart-7d6f8d5d49-6zk2c", "Terminating", "n1") + row("till-7d6f8d5d49-r4vpn", "Running", "n2") + "\n" + away, "node n1 is NotReady: the pod was marked for deletion, which waits for that node to answer"},
		"its node answers":      {head + row("cart-7d6f8d5d49-6zk2c", "Terminating", "n1") + "\n" + well, ""},
		"another node is away":  {head + row("cart-7d6f8d5d49-6zk2c", "Terminating", "n2") + "\n" + away, ""},
		"the node is not known": {"NAME   READY   STATUS   RESTARTS   AGE\ncart-7d6f8d5d49-6zk2c   1/1   Terminating   0   9d\n\n" + away, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pods.txt": c.text})
			if is := key(r) == "found node-lost"; is != (c.says != "") || is && r.Sentence != c.says {
				t.Errorf("%s: %s", key(r), r.Sentence)
			}
		})
	}
}

// A pod without a proxy, whose namespace asks for none, is refused by what wants mutual TLS.
func TestNoProxyAndStrict(t *testing.T) {
	const (
		spaces = "NAME    STATUS   AGE   ISTIO-INJECTION\nshop    Active   9d    {shop}\ndata    Active   9d    {data}\n"
		strict = "NAMESPACE      NAME      MODE     AGE\nistio-system   default   STRICT   9d\n"
		reset  = "GET http://db.data:8080/: read tcp 10.1.0.7:41550->10.2.0.9:8080: read: connection reset by peer"
	)
	of := func(shop, data string) string {
		return strings.NewReplacer("{shop}", shop, "{data}", data).Replace(spaces)
	}
	object := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: till}}\n---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: all, namespace: data}\nspec: {mtls: {mode: STRICT}}\n"
	for name, c := range map[string]struct {
		line, file, text string
		says             bool
	}{
		"tables":                        {reset, "mesh.txt", of("", "enabled") + "\n" + strict, true},
		"labels":                        {reset, "mesh.txt", "NAME   STATUS   AGE   LABELS\nshop   Active   9d    kubernetes.io/metadata.name=shop\ndata   Active   9d    istio.io/rev=canary,kubernetes.io/metadata.name=data\n\n" + strict, true},
		"objects":                       {reset, "mesh.yaml", object, true},
		"the destination is not known":  {"read: connection reset by peer", "mesh.txt", of("", "enabled") + "\n" + strict, true},
		"the namespace asks for one":    {reset, "mesh.txt", of("enabled", "enabled") + "\n" + strict, false},
		"the other has no proxy either": {reset, "mesh.txt", of("", "") + "\n" + strict, false},
		"mutual TLS is not wanted":      {reset, "mesh.txt", of("", "enabled") + "\n" + strings.Replace(strict, "STRICT", "PERMISSIVE", 1), false},
		"it is not wanted there":        {reset, "mesh.txt", of("", "enabled") + "\n" + strict + "data   open   PERMISSIVE   9d\n", false},
		"refused":                       {"dial tcp 10.2.0.9:8080: connect: connection refused", "mesh.txt", of("", "enabled") + "\n" + strict, false},
		"nothing says what it asks for": {reset, "mesh.txt", strict, false},
	} {
		t.Run(name, func(t *testing.T) {
			files := callerOf(c.line)
			files[c.file] = c.text
			r := diagnoseFiles(t, files)
			if is := strings.HasPrefix(r.Sentence, "app has no proxy, since namespace shop asks for none"); is != c.says || is && (r.Findings[0].Confidence != result.Likely || !r.Quotes(c.file)) {
				t.Errorf("%s", r.Sentence)
			}
		})
	}
}

// A Service that leads to a port at which nothing listens is found by the proxy of the pod that is called.
func TestCalledAtAnotherPort(t *testing.T) {
	const (
		pods    = "$ kubectl -n shop get pods\nNAME                    READY   STATUS    RESTARTS   AGE\ncart-7f5c9d8b4c-2kq8n   2/2     Running   0          9d\n"
		refused = "{at} \"GET / HTTP/1.1\" 503 UF delayed_connect_error:_111 - \"-\" 0 152 0 - \"-\" \"curl\" \"1\" \"cart.shop\" \"10.1.0.9:7070\" inbound|7070|| - 10.1.0.9:7070 10.1.0.8:4162 - default\n"
		ready   = "2026-03-02T10:00:03.000000Z\tinfo\tEnvoy proxy is ready\n"
		service = "apiVersion: v1\nkind: Service\nmetadata: {name: cart, namespace: shop}\nspec: {ports: [{port: 80, targetPort: 7070}]}\n"
	)
	late, soon := strings.Replace(refused, "{at}", "[2026-03-02T11:00:03.000Z]", 1), strings.Replace(refused, "{at}", "[2026-03-02T10:00:09.000Z]", 1)
	linkerd := "2026-03-02T10:00:03Z [     0.100s]  INFO ThreadId(02) linkerd_app: Certified identity id=cart\n2026-03-02T11:00:03Z [  3600.100s]  INFO ThreadId(01) inbound:server{port=7070}: linkerd_app_core::serve: Connection closed error=connect: Connection refused (os error 111)\n"
	for name, c := range map[string]struct{ proxy, log, app, service, says string }{ // in any order: subtests
		"it listens elsewhere": {"istio-proxy", ready + late, "listening on :7071\n", service, "Service shop/cart leads to port 7070, where nothing listens; by its log, cart listens on 7071"},
		"without the Service":  {"istio-proxy", ready + late, "server started on port 7071\n", "", "they come to port 7070, where nothing listens; by its log, cart listens on 7071"},
		"another mesh":         {"linkerd-proxy", linkerd, "listening on :7071\n", service, "Service shop/cart leads to port 7070, where nothing listens; by its log, cart listens on 7071"},
		"it listens there":     {"istio-proxy", ready + late, "metrics: listening on :7071\nlistening on :7070\n", service, ""},
		"it was just starting": {"istio-proxy", ready + soon, "listening on :7071\n", service, ""},
		"it does not say":      {"istio-proxy", ready + late, "up\n", service, ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pods.txt": pods, c.proxy + ".log": c.log, "cart.log": c.app}
			if c.service != "" {
				files["svc.yaml"] = c.service
			}
			r := diagnoseFiles(t, files)
			if says, is := strings.CutPrefix(r.Sentence, "calls to the pod fail: "); is != (c.says != "") || says != c.says && is {
				t.Errorf("%s", r.Sentence)
			}
		})
	}
}

// A policy that does not let a call out is the cause of a connection that the proxy made in vain until it gave up. A refused
// one got an answer.
func TestPolicyBehindAProxy(t *testing.T) {
	const (
		head   = "$ kubectl -n shop get pods --show-labels\nNAME                    READY   STATUS             RESTARTS      AGE   LABELS\n"
		row    = "cart-7f5c9d8b4c-2kq8n   1/2     CrashLoopBackOff   5 (9s ago)   9m    app=cart,pod-template-hash=7f5c9d8b4c\n"
		app    = "2026-03-02T10:00:15.100Z ERROR could not connect to store.data.svc.cluster.local:6379: server closed the connection unexpectedly\n"
		access = "2026-03-02T10:00:03.000Z\tinfo\tEnvoy proxy is ready\n[2026-03-02T10:00:05.000Z] \"- - -\" 0 UF,URX - - \"-\" 0 0 {took} - \"-\" \"-\" \"-\" \"-\" \"10.2.0.9:6379\" outbound|6379||store.data.svc.cluster.local - 10.96.0.7:6379 10.1.0.8:4162 - -\n"
		policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed, namespace: shop}\nspec:\n  podSelector: {matchLabels: {app: {app}}}\n  policyTypes: [Egress]\n  egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: data}}}], ports: [{port: {port}}]}]\n"
	)
	rule := func(app, port string) string {
		return strings.NewReplacer("{app}", app, "{port}", port).Replace(policy)
	}
	for name, c := range map[string]struct { // in any order: subtests
		took, policy string
		says         bool
	}{
		"another port alone":   {"10001", rule("cart", "5432"), true},
		"it allows the port":   {"10001", rule("cart", "6379"), false},
		"it selects others":    {"10001", rule("till", "5432"), false},
		"the call was refused": {"1", rule("cart", "5432"), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pods.txt": head + row, "cart.previous.log": app, "istio-proxy.log": strings.Replace(access, "{took}", c.took, 1), "np.yaml": c.policy})
			if strings.HasSuffix(r.Sentence, ", since NetworkPolicy closed does not allow it") != c.says || !strings.Contains(r.Sentence, "through its proxy") {
				t.Errorf("%s", r.Sentence)
			}
		})
	}
}

// A Job's pod whose work is done stays as long as its proxy runs; and a CronJob that forbids two Jobs at a time starts none
// meanwhile.
func TestJobThatStays(t *testing.T) {
	const (
		pod = `apiVersion: v1
kind: Pod
metadata: {name: report-29743320-8w5kd, namespace: shop, labels: {job-name: report-29743320}, creationTimestamp: "2026-03-02T10:00:00Z", ownerReferences: [{apiVersion: batch/v1, kind: Job, name: report-29743320, controller: true, uid: a}]}
spec: {restartPolicy: {policy}, containers: [{name: report, image: r.example/report:1}, {name: istio-proxy, image: docker.io/istio/proxyv2:1.26.2}]}
status:
  phase: Running
  startTime: "2026-03-02T10:00:00Z"
  containerStatuses:
  - {name: report, ready: false, restartCount: 0, state: {terminated: {exitCode: {exit}, reason: Error, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:00:09Z"}}}
  - {name: istio-proxy, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}}
`
		object = "Name:                {name}\nNamespace:           shop\nConcurrency Policy:  {policy}\n"
		event  = "LAST SEEN   TYPE      REASON             OBJECT           MESSAGE\n9s          Normal    JobAlreadyActive   cronjob/report   Not starting job because prior execution is running and concurrency policy is Forbid\n"
		done   = "the job cannot end: its work is done, and istio-proxy runs on"
		none   = "; meanwhile CronJob report starts no other (Forbid)"
	)
	cron := func(name, policy string) string {
		return strings.NewReplacer("{name}", name, "{policy}", policy).Replace(object)
	}
	for name, c := range map[string]struct{ exit, policy, file, text, says string }{ // in any order: subtests
		"it forbids others":          {"0", "Never", "cron.txt", cron("report", "Forbid"), done + none},
		"an event":                   {"0", "Never", "events.txt", event, done + none},
		"others may run":             {"0", "Never", "cron.txt", cron("report", "Allow"), done},
		"another CronJob":            {"0", "Never", "cron.txt", cron("import", "Forbid"), done},
		"the kubelet tries it again": {"4", "OnFailure", "cron.txt", cron("report", "Forbid"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": strings.NewReplacer("{exit}", c.exit, "{policy}", c.policy).Replace(pod), "report.log": "2026-03-02T10:00:09Z FATAL no space left on device\n", c.file: c.text})
			got := ""
			for _, f := range r.Findings {
				if f.Code == "job-never-ends" {
					got = f.Sentence
				}
			}
			if got != c.says {
				t.Errorf("%s: %q", r.Sentence, got)
			}
		})
	}
}

// A program that asks its proxy itself does so before that listens, as the proxy's log shows. The answer's words are no name.
func TestProxyThatIsAsked(t *testing.T) {
	const (
		row    = "$ kubectl -n shop get po\nNAME                    READY   STATUS    RESTARTS      AGE\ntill-7f5c9d8b4c-2kq8n   2/2     Running   1 (20s ago)   25s\n"
		call   = "System.Net.Http.HttpRequestException: Connection refused (127.0.0.1:3500)\n"
		listen = `time="2026-03-02T10:00:05.2Z" level=info msg="HTTP server is running on port 3500" scope=dapr.runtime` + "\n"
	)
	for name, c := range map[string]struct{ log, says string }{ // in any order: subtests
		"it listens there":     {listen, "till called its own pod at 127.0.0.1:3500, most likely before daprd listened there"},
		"it listens elsewhere": {strings.Replace(listen, "3500", "50002", 1), "till called its own pod at 127.0.0.1:3500, where no container listened"},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pods.txt": row, "till.previous.log": call, "daprd.log": c.log})
			if r.Sentence != c.says {
				t.Errorf("%s", r.Sentence)
			}
		})
	}
}
