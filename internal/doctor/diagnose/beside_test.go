package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// A ticket shows a table, and a few lines of a description, of a pod whose logs lie beside it. The logs are of the pod
// that restarted, and of its containers, as far as the table counts them.
func TestTicketWithLogs(t *testing.T) {
	const (
		rows     = "$ kubectl -n shop get po\nNAME                    READY   STATUS    RESTARTS      AGE\n"
		well     = "web-6d4b75cb6d-hx9k2    2/2     Running   0             3d\n"
		ill      = "web-7f5c9d8b4c-2kq8n    2/2     Running   1 (20s ago)   25s\n"
		fragment = "\n$ kubectl describe pod/web-7f5c9d8b4c-2kq8n -n shop | grep -A12 ' web:'\n  web:\n    Image:          web:7\n    State:          Running\n      Started:      Mon, 02 Mar 2026 10:00:09 +0000\n" +
			"    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    1\n      Started:      Mon, 02 Mar 2026 10:00:02 +0000\n      Finished:     Mon, 02 Mar 2026 10:00:05 +0000\n    Restart Count:  1\n"
		refused = "boot\nredis.exceptions.ConnectionError: Error 111 connecting to localhost:6390. Connection refused.\n"
		late    = "2026-03-02T10:00:05.400Z shard-router: listening on 127.0.0.1:6390\n"
	)
	files := func(ticket, helper string) map[string]string {
		return map[string]string{"ticket.txt": ticket, "web.previous.log": refused, "shard-router.log": helper}
	}
	for name, c := range map[string]struct {
		files map[string]string
		pods  int
		says  string
	}{
		"a table and a fragment": {files(rows+well+ill+fragment, late), 1, "web called its own pod at localhost:6390, most likely before shard-router listened there"},
		"a table":                {files(rows+well+ill, late), 1, "web called its own pod at localhost:6390, most likely before shard-router listened there"},
		"one line":               {files(rows+ill, late), 1, "most likely before shard-router listened there"},
		"no more containers":     {files(rows+strings.Replace(ill, "2/2", "1/1", 1)+fragment, late), 1, "no other container is there that could listen"},
		"another port":           {files(rows+ill+fragment, strings.Replace(late, "6390", "6391", 1)), 1, "web called its own pod at localhost:6390, where no container listened"},
		"no logs":                {map[string]string{"ticket.txt": rows + well + ill}, 1, "the line looks well (Running), after 1 restarts; why is not in the evidence"},
	} {
		t.Run(name, func(t *testing.T) {
			set := readSet(t, c.files)
			if len(set.Pods) != c.pods {
				t.Fatalf("%d pods", len(set.Pods))
			}
			r, err := Diagnose(t.Context(), set.Pods[len(set.Pods)-1], Options{})
			if err != nil || !strings.Contains(r.Sentence, c.says) {
				t.Errorf("%s (%v)", r.Sentence, err)
			}
			if strings.Contains(r.Sentence, "likely") && r.Findings[0].Confidence != result.Likely {
				t.Errorf("%+v", r.Findings[0])
			}
			if r.Pod != "shop/web-7f5c9d8b4c-2kq8n" {
				t.Errorf("%s", r.Pod)
			}
		})
	}
}

// callerOf is a pod that ended at 10:00:05, with its labels, its address and what it says at its end.
func callerOf(line string) map[string]string {
	return map[string]string{
		"pod.yaml": `apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, uid: 0b4a7c1e-8f70-4c9d-a9c2-6f6d5b7f2a10, labels: {app: web}, creationTimestamp: "2026-03-02T09:59:58Z", ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: web, controller: true, uid: a}]}
spec: {nodeName: n1, containers: [{name: app, image: r.example/app:1}]}
status:
  phase: Running
  podIP: 10.1.0.7
  startTime: "2026-03-02T09:59:59Z"
  containerStatuses:
  - {name: app, ready: false, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:00:05Z"}}}
`,
		"app.previous.log": "2026-03-02T10:00:05.100Z ERROR " + line + "\n",
	}
}

// The files beside a pod have the cause of a failed call in what they say about its destination, and about no other.
func TestFilesBeside(t *testing.T) {
	const (
		refused  = "connect to orders.shop.svc:80: connection refused"
		address  = "dial tcp 10.2.0.9:5432: i/o timeout"
		refusedA = "dial tcp 10.96.0.20:80: connect: connection refused"
		named    = "could not connect to db.data.svc.cluster.local:5432: connection timed out"
		lookup   = "getaddrinfo EAI_AGAIN db.data.svc.cluster.local"
		policy   = "kind: NetworkPolicy\napiVersion: networking.k8s.io/v1\nmetadata: {name: closed, namespace: shop}\nspec: {podSelector: {%s}, policyTypes: [Egress], egress: [%s]}\n"
		service  = "apiVersion: v1\nkind: Service\nmetadata: {name: orders, namespace: shop}\nspec: {clusterIP: 10.96.0.20, selector: {app: orders}, ports: [{port: 80, targetPort: 8080}]}\n"
	)
	slice := func(port, ready string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: orders-x7k2p, namespace: shop, labels: {kubernetes.io/service-name: orders}}\naddressType: IPv4\nports: [{port: " + port + "}]\nendpoints: [{addresses: [10.1.0.30], conditions: {ready: " + ready + "}}]\n"
	}
	rule := func(selects, rules string) string {
		return strings.Replace(strings.Replace(policy, "%s", selects, 1), "%s", rules, 1)
	}
	for name, c := range map[string]struct {
		line, file, text string
		says             string // after "since"; empty: nothing
	}{
		"hubble":                                {address, "flows.txt", "Mar  2 10:00:01.1: shop/web-0:4155 (ID:3) <> 10.2.0.9:5432 (world) Policy denied DROPPED (TCP Flags: SYN)\n", "a network policy drops its packets"},
		"hubble, as JSON":                       {address, "flows.json.txt", `{"flow":{"time":"2026-03-02T10:00:01Z","verdict":"DROPPED","IP":{"source":"10.1.0.7","destination":"10.2.0.9"},"l4":{"TCP":{"destination_port":5432}},"drop_reason_desc":"POLICY_DENIED"}}` + "\n", "a network policy drops its packets"},
		"hubble, a name of the destination":     {named, "flows.out", "Mar  2 10:00:01.1: shop/web-0:4155 (ID:3) -> data/db-0:5432 (ID:9) policy-verdict:none EGRESS DENIED (TCP Flags: SYN)\n", "a network policy drops its packets"},
		"cilium monitor":                        {address, "monitor.log", "xx drop (Policy denied) flow 0x0 to endpoint 0, identity 3->2: 10.1.0.7:41550 -> 10.2.0.9:5432 tcp SYN\n", "a network policy drops its packets"},
		"a flow log of a cloud":                 {address, "vpc.log", "2 123 eni-1 10.1.0.7 10.2.0.9 41550 5432 6 1 60 1772445601 1772445660 REJECT OK\n", "its packets are dropped on the way"},
		"a kernel's log":                        {address, "dmesg.txt", "Mar  2 10:00:03 n1 kernel: FW-DROP IN=cali1 OUT=eth0 SRC=10.1.0.7 DST=10.2.0.9 LEN=60 PROTO=TCP SPT=41550 DPT=5432 SYN\n", "its packets are dropped on the way"},
		"OVN":                                   {address, "acl.log", "2026-03-02T10:00:03Z|0004|acl_log|INFO|name=\"NP:shop:closed:Egress\", verdict=drop, direction=from-lport: tcp,nw_src=10.1.0.7,nw_dst=10.2.0.9,tp_src=41550,tp_dst=5432\n", "a network policy drops its packets"},
		"dropped of another pod":                {address, "flows.txt", "Mar  2 10:00:01.1: shop/api-0:4155 (ID:3) <> 10.2.0.9:5432 (world) Policy denied DROPPED (TCP Flags: SYN)\n", ""},
		"dropped to another port":               {address, "flows.txt", "Mar  2 10:00:01.1: shop/web-0:4155 (ID:3) <> 10.2.0.9:9092 (world) Policy denied DROPPED (TCP Flags: SYN)\n", ""},
		"it passed":                             {address, "flows.txt", "Mar  2 10:00:01.1: shop/web-0:4155 (ID:3) -> 10.2.0.9:5432 (world) to-stack FORWARDED, 0 dropped (TCP Flags: SYN)\n", ""},
		"dropped hours before":                  {address, "flows.log", "2026-03-02T04:00:01Z shop/web-0:4155 (ID:3) <> 10.2.0.9:5432 (world) Policy denied DROPPED (TCP Flags: SYN)\n", ""},
		"dropped hours after":                   {address, "flows.log", "2026-03-02T14:00:01Z shop/web-0:4155 (ID:3) <> 10.2.0.9:5432 (world) Policy denied DROPPED (TCP Flags: SYN)\n", ""},
		"a short name means the own namespace":  {"connect to orders:80: connection refused", "kubectl.txt", "$ kubectl get endpoints orders -n other\nNAME     ENDPOINTS   AGE\norders   <none>      3d\n", ""},
		"no endpoints, a table":                 {refused, "kubectl.txt", "$ kubectl get endpoints orders -n shop\nNAME     ENDPOINTS   AGE\norders   <none>      3d\n", "Service shop/orders has no endpoints"},
		"no endpoints, of another namespace":    {refused, "kubectl.txt", "$ kubectl get endpoints orders -n other\nNAME     ENDPOINTS   AGE\norders   <none>      3d\n", ""},
		"it has endpoints":                      {refused, "kubectl.txt", "NAMESPACE   NAME     ENDPOINTS        AGE\nshop        orders   10.1.0.30:8080   3d\n", ""},
		"no endpoints, a description":           {refused, "svc.txt", "Name:              orders\nNamespace:         shop\nSelector:          app=orders\nType:              ClusterIP\nIP:                10.96.0.20\nPort:              http  80/TCP\nTargetPort:        8080/TCP\nEndpoints:         <none>\n", "Service shop/orders has no endpoints"},
		"no endpoint is ready, by the address":  {refusedA, "objects.yaml", service + "---\n" + slice("8080", "false"), "no pod of Service shop/orders is ready"},
		"no endpoint is ready, in a list":       {refused, "objects.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Endpoints\n  metadata: {name: orders, namespace: shop}\n  subsets: [{notReadyAddresses: [{ip: 10.1.0.30}], ports: [{port: 8080}]}]\n", "no pod of Service shop/orders is ready"},
		"a slice":                               {refused, "slices.txt", "NAME           ADDRESSTYPE   PORTS    ENDPOINTS   AGE\norders-x7k2p   IPv4          <unset>  <unset>     3d\n", "Service shop/orders has no endpoints"},
		"the labels differ":                     {refused, "all.txt", "$ kubectl -n shop get svc,ep -o wide\nNAME             TYPE        CLUSTER-IP    EXTERNAL-IP   PORT(S)   AGE   SELECTOR\nservice/orders   ClusterIP   10.96.0.20    <none>        80/TCP    3d    app=orders,tier=a\n\nNAME               ENDPOINTS   AGE\nendpoints/orders   <none>      3d\n\n$ kubectl -n shop get po --show-labels\nNAME       READY   STATUS    RESTARTS   AGE   LABELS\nordersx-0  1/1     Running   0          3d    app=orders,tier=b\n", "the selector of Service shop/orders matches no pod"},
		"another port":                          {"connect to orders.shop.svc:81: connection refused", "svc.yaml", service, "Service shop/orders has no port 81 (it has 80)"},
		"it listens elsewhere":                  {refused, "more.txt", "$ kubectl -n shop get ep orders\nNAME     ENDPOINTS        AGE\norders   10.1.0.30:8080   3d\n$ kubectl -n shop logs deploy/orders\n2026-03-01T10:00:00Z server started on port 9000\n", "its Service leads to port 8080, and orders listens on 9000"},
		"it listens there":                      {refused, "more.txt", "$ kubectl -n shop get ep orders\nNAME     ENDPOINTS        AGE\norders   10.1.0.30:8080   3d\n$ kubectl -n shop logs deploy/orders\n2026-03-01T10:00:00Z metrics: listening on :9000\n2026-03-01T10:00:00Z listening on :8080\n", ""},
		"another program listens elsewhere":     {refused, "more.txt", "$ kubectl -n shop get ep orders\nNAME     ENDPOINTS        AGE\norders   10.1.0.30:8080   3d\n$ kubectl -n shop logs deploy/carts\n2026-03-01T10:00:00Z server started on port 9000\n", ""},
		"it listens on its own loopback":        {refused, "orders-5d9c7b6f4d-x2x7k.log", "2026-03-01T10:00:00Z listening on 127.0.0.1:8080\n", ""}, // no port of its pods is known
		"it listened later":                     {refused, "orders-0.log", "2026-03-02T10:00:09Z listening on 0.0.0.0:80\n", "orders listened only later"},
		"it listened before":                    {refused, "orders-0.log", "2026-03-02T09:00:09Z listening on 0.0.0.0:80\n", ""},
		"it ended":                              {refused, "orders-0.log", "2026-03-02T10:00:00Z FATAL could not open the index: no space left on device\n", "orders does not run, as its own log says: could not open the index: no space left on device"},
		"it had an error":                       {refused, "orders-0.log", "2026-03-02T10:00:00Z ERROR request 12 failed: no such cart\n", ""},
		"another one ended":                     {refused, "carts-0.log", "2026-03-02T10:00:00Z FATAL could not open the index: no space left on device\n", ""},
		"its pods are not ready":                {refused, "pods.txt", "$ kubectl get pods -n shop\nNAME                      READY   STATUS             RESTARTS   AGE\norders-5d9c7b6f4d-x2x7k   0/1     ImagePullBackOff   0          3d\n", "no pod of orders is ready: orders-5d9c7b6f4d-x2x7k is ImagePullBackOff"},
		"one of its pods is ready":              {refused, "pods.txt", "$ kubectl get pods -n shop\nNAME                      READY   STATUS             RESTARTS   AGE\norders-5d9c7b6f4d-x2x7k   0/1     ImagePullBackOff   0          3d\norders-5d9c7b6f4d-x2x7l   1/1     Running            0          3d\n", ""},
		"a policy allows DNS alone":             {named, "np.yaml", rule("", "{ports: [{port: 53, protocol: UDP}]}"), "NetworkPolicy closed does not allow it"},
		"a policy allows another namespace":     {named, "np.yaml", rule("", "{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}]}"), "NetworkPolicy closed does not allow it"},
		"a policy allows the namespace":         {named, "np.yaml", rule("", "{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: data}}}]}"), ""},
		"a policy allows another network":       {address, "np.yaml", rule("", "{to: [{ipBlock: {cidr: 10.3.0.0/16}}]}"), "NetworkPolicy closed does not allow it"},
		"a policy allows the network":           {address, "np.yaml", rule("", "{to: [{ipBlock: {cidr: 10.2.0.0/16}}]}"), ""},
		"a policy leaves the address out":       {address, "np.yaml", rule("", "{to: [{ipBlock: {cidr: 10.2.0.0/16, except: [10.2.0.8/29]}}]}"), "NetworkPolicy closed does not allow it"},
		"a policy may allow a port of the pods": {named, "np.yaml", rule("", "{ports: [{port: 6432}]}"), ""},
		"a policy of other pods":                {named, "np.yaml", rule("matchLabels: {app: api}", ""), ""},
		"another policy allows it":              {named, "np.yaml", rule("", "") + "---\n" + strings.Replace(rule("", "{}"), "closed", "open", 1), ""},
		"a policy that is not understood":       {named, "np.yaml", rule("matchExpressions: [{key: app, operator: Exists}]", ""), ""},
		"a policy does not allow DNS":           {lookup, "np.yaml", rule("", "{ports: [{port: 25}]}"), "NetworkPolicy closed does not allow queries of DNS"},
		"a policy allows all":                   {lookup, "np.yaml", rule("", "{}"), ""},
		"the name has no namespace":             {"lookup orders: no such host", "svc.txt", "$ kubectl get svc -A\nNAMESPACE   NAME     TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   AGE\nstock       orders   ClusterIP   10.96.0.20   <none>        80/TCP    3d\n", "Service orders is in namespace stock, and the name has none"},
		"the name has another namespace":        {"lookup orders.web.svc.cluster.local: no such host", "svc.txt", "$ kubectl get svc -A | grep orders\nstock       orders   ClusterIP   10.96.0.20   <none>        80/TCP    3d\n", "Service orders is in namespace stock, not web"},
		"a Service of the whole name":           {"lookup orders.web.svc.cluster.local: no such host", "svc.txt", "stock   orders   ClusterIP   10.96.0.20   <none>   80/TCP   3d\nweb   orders   ClusterIP   10.96.0.21   <none>   80/TCP   3d\n", ""},
		"two Services of the name":              {"lookup orders.web.svc: no such host", "svc.txt", "stock   orders   NodePort   10.96.0.20   <none>   80:31000/TCP   3d\ntest   orders   ClusterIP   10.96.0.21   <none>   80/TCP   3d\n", ""},
		"a name outside the cluster":            {"lookup orders.example.com: no such host", "svc.txt", "stock   orders   ClusterIP   10.96.0.20   <none>   80/TCP   3d\n", ""},
		"the pod of an endpoint":                {refused, "objects.yaml", "apiVersion: v1\nkind: Endpoints\nmetadata: {name: orders, namespace: shop}\nsubsets: [{notReadyAddresses: [{ip: 10.1.0.30, targetRef: {kind: Pod, name: orders-0}}], ports: [{port: 8080}]}]\n", "no pod of Service shop/orders is ready: orders-0"},
	} {
		t.Run(name, func(t *testing.T) {
			files := callerOf(c.line)
			files[c.file] = c.text
			r := diagnoseFiles(t, files)
			_, since, _ := strings.Cut(r.Sentence, ", since ")
			if since != c.says {
				t.Errorf("%s", r.Sentence)
			}
			if c.says != "" && (r.Findings[0].Confidence != result.Likely || !r.Quotes(c.file) || r.Findings[0].Remedy.Sentence == "") {
				t.Errorf("%+v", r.Findings[0])
			}
		})
	}
}

// A configuration beside a pod says which container listens where; a line of it about where a program calls says nothing.
func TestConfigurationBeside(t *testing.T) {
	const line = "dial tcp 127.0.0.1:7001: connect: connection refused"
	object := func(text string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gate-conf, namespace: shop}\ndata:\n  gate.conf: |\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
	}
	for name, c := range map[string]struct {
		file, text string
		says       bool
	}{
		"Envoy's listeners":     {"cm.yaml", object("static_resources:\n  listeners:\n  - name: a\n    address:\n      socket_address:\n        address: 127.0.0.1\n        port_value: 7001"), true},
		"Envoy's clusters":      {"cm.yaml", object("static_resources:\n  listeners: []\n  clusters:\n  - name: a\n    load_assignment:\n      endpoints:\n      - socket_address: {address: 127.0.0.1, port_value: 7001}"), false},
		"nginx":                 {"nginx.conf", "# gate\nhttp {\n  server {\n    listen 127.0.0.1:7001;\n  }\n}\n", false}, // of which container is not known
		"what a listener calls": {"cm.yaml", object("listeners:\n- name: a\n  forward:\n    upstream: 127.0.0.1:7001"), false},
		"nginx, in a ConfigMap": {"cm.yaml", object("http {\n  server {\n    listen 127.0.0.1:7001;\n  }\n}"), true},
		"nginx's upstream":      {"cm.yaml", object("http {\n  upstream a {\n    server 127.0.0.1:7001;\n  }\n}"), false},
		"properties":            {"gate.properties", "server.port=7001\n", true},
		"an ini file":           {"gate.ini", "[x]\nlisten_addr = 127.0.0.1\nlisten_port = 7001\n", true},
		"a comment":             {"gate.ini", "[x]\n# listen_port = 7001\nlisten_port = 7002\n", false},
		"Spring":                {"cm.yaml", object("server:\n  port: 7001"), true},
	} {
		t.Run(name, func(t *testing.T) {
			files := callerOf(line)
			files["pod.yaml"] = strings.Replace(strings.Replace(files["pod.yaml"], "image: r.example/app:1}", "image: r.example/app:1}, {name: gate, image: r.example/proxy:2}", 1),
				"  containerStatuses:\n", "  containerStatuses:\n  - {name: gate, ready: true, restartCount: 0, state: {running: {startedAt: \"2026-03-02T10:00:06Z\"}}}\n", 1)
			files["pod.yaml"] = strings.Replace(files["pod.yaml"], "restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: \"2026-03-02T10:00:02Z\", finishedAt: \"2026-03-02T10:00:05Z\"}}", "restartCount: 0, state: {terminated: {exitCode: 1, reason: Error, startedAt: \"2026-03-02T10:00:02Z\", finishedAt: \"2026-03-02T10:00:05Z\"}}", 1)
			files["app.log"] = files["app.previous.log"]
			delete(files, "app.previous.log")
			files[c.file] = c.text
			r := diagnoseFiles(t, files)
			if r.Quotes(c.file) != c.says || !strings.Contains(r.Sentence, "before gate listened there") {
				t.Errorf("%s: %+v", r.Sentence, r.Findings[0].Evidence)
			}
		})
	}
}

// A proxy that does not get ready is told by the log, or the state, of its control plane, if that is beside the pod.
func TestControlPlaneBeside(t *testing.T) {
	const pod = `apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, creationTimestamp: "2026-03-02T09:59:58Z"}
spec: {containers: [{name: app, image: r.example/app:1}, {name: istio-proxy, image: docker.io/istio/proxyv2:1.26.2}]}
status:
  phase: Running
  startTime: "2026-03-02T09:59:59Z"
  containerStatuses:
  - {name: app, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}}
  - {name: istio-proxy, ready: false, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}}
`
	const proxy = "2026-03-02T10:00:03.000Z\tinfo\tInitializing with upstream address \"istiod.mesh.svc:15012\" and cluster \"K\"\n" +
		"2026-03-02T10:00:04.000Z\twarning\tenvoy config\tgRPC config stream to xds-grpc closed: 14, connection error: dial tcp 10.96.7.7:15012: connect: connection refused\n" +
		"[2026-03-02T10:00:05.000Z] \"GET / HTTP/1.1\" 503 UF - \"-\" \"-\" \"orders:80\" \"-\" outbound|80||orders.shop.svc.cluster.local\n" +
		"2026-03-02T10:30:00.000Z\tinfo\tEnvoy proxy is NOT ready: config not received from XDS server (is Istiod running?): cds updates: 0 successful, 0 rejected; lds updates: 0 successful, 0 rejected\n"
	for name, c := range map[string]struct{ file, text, says string }{
		"its log":                 {"istiod-5d9c7b6f4d-x2x7k.log", "2026-03-02T10:00:00Z\tfatal\tcould not load the root certificate: x509: certificate has expired\n", "since istiod does not run, as its own log says: could not load the root certificate: x509: certificate has expired"},
		"its pods":                {"pods.txt", "$ kubectl -n mesh get pods\nNAME                      READY   STATUS    RESTARTS   AGE\nistiod-5d9c7b6f4d-x2x7k   0/1     Pending   0          31m\n", "since no pod of istiod is: istiod-5d9c7b6f4d-x2x7k is Pending"},
		"one of its pods is well": {"pods.txt", "$ kubectl -n mesh get pods\nNAME                      READY   STATUS    RESTARTS   AGE\nistiod-5d9c7b6f4d-x2x7k   0/1     Pending   0          31m\nistiod-5d9c7b6f4d-x2x7l   1/1     Running   0          31m\n", ""},
		"what the app calls":      {"orders-5d9c7b6f4d-x2x7k.log", "2026-03-02T10:00:00Z\tfatal\tno disk\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": pod, "istio-proxy.log": proxy, c.file: c.text})
			if got := strings.TrimPrefix(r.Sentence, "istio-proxy does not get ready, "); c.says != "" && got != c.says || c.says == "" && got != "istio-proxy is not ready: it does not reach its control plane" {
				t.Errorf("%s", r.Sentence)
			}
		})
	}
}

// Another program's word about the pod, or about the gate for which it waits, is told of a pod of which nothing else is known.
func TestSaidOfThePod(t *testing.T) {
	const pod = `apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, uid: 0b4a7c1e-8f70-4c9d-a9c2-6f6d5b7f2a10, creationTimestamp: "2026-03-02T09:00:00Z"}
spec: {readinessGates: [{conditionType: lb.example/web-7f3a}], containers: [{name: app, image: r.example/app:1}]}
status:
  phase: Running
  startTime: "2026-03-02T09:00:00Z"
  conditions:
  - {type: ContainersReady, status: "True", lastTransitionTime: "2026-03-02T10:00:00Z"}
  - {type: Ready, status: "False", reason: ReadinessGatesNotReady, lastTransitionTime: "2026-03-02T10:00:00Z"}
  containerStatuses: [{name: app, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T09:00:02Z"}}}]
`
	for name, c := range map[string]struct {
		line string
		says bool
	}{
		"an error about the gate":        {`{"level":"error","ts":"2026-03-02T09:10:00Z","msg":"reconcile","binding":"web-7f3a","error":"quota of targets is used up"}`, true},
		"a warning about the pod":        {"2026-03-02T09:10:00Z WARN failed to register pod shop/web-0: quota of targets is used up", true},
		"an error about another gate":    {`{"level":"error","ts":"2026-03-02T09:10:00Z","msg":"reconcile","binding":"api-12ab","error":"quota of targets is used up"}`, false},
		"a line of information about it": {`{"level":"info","ts":"2026-03-02T09:10:00Z","msg":"registered","binding":"web-7f3a"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": pod, "controller.log": c.line + "\n"})
			if strings.Contains(r.Sentence, "controller.log says of it: ") != c.says || c.says && !strings.Contains(r.Sentence, "quota of targets is used up") {
				t.Errorf("%s", r.Sentence)
			}
		})
	}
}
