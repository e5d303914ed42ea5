package status

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/ns"
)

// callFrom sends a request from one address of a namespace.
func callFrom(t *testing.T, in *ns.Namespace, from, url string, header http.Header) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, to string) (conn net.Conn, err error) {
		d := net.Dialer{}
		if from != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
		}
		in.Do(func() { conn, err = d.Dial("tcp", to) })
		return conn, err
	}}}
	req, err := http.NewRequest("GET", "http://"+url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Any pod of the cluster can reach the status ports, and nothing in front of them identifies the
// client. Other pods can neither call the app's hooks and probes nor read the agent's internals.
func TestWhoMayCallWhat(t *testing.T) {
	const key = "0123456789abcdefKEY"
	pod, network := ns.New(t), ns.New(t)
	const self, gateway, host, elsewhere, prometheus = "10.9.0.2", "10.9.0.1", "10.9.0.9", "10.9.0.3", "10.9.0.4"
	addresses := []netip.Prefix{}
	for _, a := range []string{gateway, host, elsewhere, prometheus} {
		addresses = append(addresses, netip.MustParsePrefix(a+"/24"))
	}
	ns.Connect(pod, "eth0", mustPrefix(self+"/24"), network, "eth1", addresses)
	pod.IP("route", "add", "default", "via", gateway)
	var got http.Request
	port := app(t, false, &got) // in the test's namespace, where the server's goroutines run
	get := `{"httpGet": {"path": "/ok", "port": ` + port + `, "httpHeaders": [{"name": "X-Own", "value": "1"}]}}`
	probes, err := ParseProbes(`{"/app-health/app/readyz": `+get+`, "/app-lifecycle/app/prestopz": `+get+`}`, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	listen := func(key string, ports ...uint16) {
		pod.Do(func() {
			start(t, func(o *Options) {
				o.Ports, o.Probes = ports, probes
				o.Probes.Key = key
				o.Node = append(Gateways(), netip.MustParsePrefix(host+"/32"))
				o.MetricsFrom = mustPrefix(prometheus + "/32")
				o.Drain = func(context.Context) error { return nil }
				o.Quit = func() { t.Error("quit from elsewhere") }
			})
		})
	}
	listen("", 15020, 15021)
	listen(key, 15030, 15031)

	forged := http.Header{"Authorization": {"Bearer x"}, "Cookie": {"a=b"}, "Forwarded": {"for=1.2.3.4"}, "X-Forwarded-Client-Cert": {"URI=spiffe://x"},
		"X-Forwarded-For": {"1.2.3.4"}, "X-Envoy-Original-Path": {"/"}, "User-Agent": {"kube-probe/1.34"}, "Outrider-Waiter": {"x"}, "X-Other": {"1"}, "Accept-Encoding": {"identity"}}
	const probe, hook = "/app-health/app/readyz", "/app-lifecycle/app/prestopz"
	for _, tt := range []struct {
		from  string
		port  int
		path  string
		code  int
		words string
	}{
		// Without a key, the node may call: from its addresses and from its end of the pod's link.
		{host, 15020, probe, 200, "fine"},
		{gateway, 15020, probe, 200, "fine"},
		{gateway, 15020, hook, 200, "fine"},
		{"", 15020, hook, 200, "fine"},
		{elsewhere, 15020, probe, 403, "10.9.0.1/32 10.9.0.9/32"},
		{elsewhere, 15020, hook, 403, "only from the pod and its node"},
		{elsewhere, 15020, hook + "/", 403, ""},
		{elsewhere, 15020, hook + "/" + key, 403, ""},
		{elsewhere, 15020, "/app-health/none/readyz", 403, ""}, // the answer does not list the probes
		{gateway, 15020, "/app-health/none/readyz", 404, "known: /app-health/app/readyz"},

		// With a key, every client that knows it may call, from everywhere; the address does not count.
		{elsewhere, 15030, probe + "/" + key, 200, "fine"}, // the kubelet on an unusual network
		{elsewhere, 15030, hook + "/" + key, 200, "fine"},
		{host, 15030, hook, 403, "key of this pod's probes"}, // a pod with hostNetwork
		{gateway, 15030, probe, 403, "key"},
		{elsewhere, 15030, probe, 403, "key"},
		{elsewhere, 15030, probe + "/" + key[1:], 403, "key"},
		{elsewhere, 15030, probe + "/" + key + "/" + key, 404, "no such probe"},
		{"", 15030, probe, 200, "fine"},

		{elsewhere, 15020, contract.ReadyPath, 503, "envoy-not-live"},
		{elsewhere, 15020, "/startup", 403, "kubectl port-forward"},
		{host, 15020, "/startup", 200, "process_started"},
		{elsewhere, 15020, "/metrics", 403, "OUTRIDER_METRICS_FROM"},
		{elsewhere, 15020, "/metrics/agent", 403, "OUTRIDER_METRICS_FROM"},
		{prometheus, 15020, "/metrics/agent", 200, "outrider_agent_ready"},
		{elsewhere, 15020, "/stats/prometheus", 403, ""},
		{prometheus, 15020, "/stats/prometheus", 200, "outrider_agent_ready"},
		{prometheus, 15020, "/startup", 403, ""},
		{host, 15020, "/metrics", 200, "outrider_agent_ready"},
		{host, 15020, "/quitquitquit", 403, "loopback"},
		{host, 15020, "/drain", 403, "loopback"},
		{host, 15020, "/debug/goroutines", 403, "loopback"},

		// A load balancer may publish the readiness port to everyone.
		{elsewhere, 15021, contract.ReadyPath, 503, "envoy-not-live"},
		{host, 15021, hook, 403, "on this port only"},
		{host, 15021, "/metrics", 403, "on this port only"},
		{elsewhere, 15031, hook + "/" + key, 403, "on this port only"},
		{"", 15021, "/startup", 200, "process_started"},
	} {
		in, to := network, self
		if tt.from == "" {
			in, to = pod, "127.0.0.1"
		}
		got = http.Request{}
		code, body := callFrom(t, in, tt.from, fmt.Sprintf("%s:%d%s", to, tt.port, tt.path), forged)
		if code != tt.code || !strings.Contains(body, tt.words) {
			t.Errorf("from %q, %d %s: %d %s; want %d %q", tt.from, tt.port, tt.path, code, body, tt.code, tt.words)
		}
		switch reached := got.URL != nil; {
		case reached != (tt.words == "fine"):
			t.Errorf("from %q, %d %s: the app's handler was called: %t", tt.from, tt.port, tt.path, reached)
		case reached && (len(got.Header) != 4 || got.Header.Get("X-Own") != "1" || got.UserAgent() != "kube-probe/1.34" || got.Host != "127.0.0.1:"+port):
			t.Errorf("the app got %s %v", got.Host, got.Header) // want X-Own, User-Agent, Accept, Connection
		}
	}
}

// The app gets the kubelet's User-Agent with its version, and no other text of the caller.
func TestUserAgentOfAProbe(t *testing.T) {
	var got http.Request
	p, err := ParseProbes(`{"/app-health/app/readyz": {"httpGet": {"path": "/ok", "port": `+app(t, false, &got)+`}}}`, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *Options) { o.Probes = p })
	for sent, want := range map[string]string{"kube-probe/1.36+k3s1": "kube-probe/1.36+k3s1", "curl/8": "kube-probe/outrider", "": "kube-probe/outrider",
		"kube-probe/": "kube-probe/outrider", "kube-probe/1 (x)": "kube-probe/outrider", "kube-probe/" + strings.Repeat("1", 33): "kube-probe/outrider"} {
		if call(t, "GET", r.url+"/app-health/app/readyz", "User-Agent", sent); got.UserAgent() != want {
			t.Errorf("%q is sent to the app as %q; want %q", sent, got.UserAgent(), want)
		}
	}
}

func TestScrapesAtOnceAreBounded(t *testing.T) {
	l := newSlotLimiter([places]int{outside: 3, onNode: 1, inside: 4}, 2)
	release := map[string][]func(){}
	for _, tt := range []struct {
		name  string
		place place
		ok    bool
	}{
		{"a", outside, true}, {"a", outside, true}, {"a", outside, false}, // the client's limit
		{"b", outside, true}, {"b", outside, false}, // the limit of the place
		{"node", onNode, true}, {"node", onNode, false},
		{"pod", inside, true}, {"pod", inside, true}, {"pod", inside, true}, // no limit for one client: the pod's containers share an address
	} {
		free, ok := l.acquire(peer{place: tt.place, name: tt.name})
		if ok != tt.ok {
			t.Errorf("%s: %t; want %t", tt.name, ok, tt.ok)
		}
		if ok {
			release[tt.name] = append(release[tt.name], free)
		}
	}
	for _, all := range release {
		for _, free := range all {
			free()
		}
	}
	if len(l.by) != 0 || l.used != [places]int{} || l.refused.Load() != 3 {
		t.Errorf("kept %v %v, refused %d", l.by, l.used, l.refused.Load())
	}
}

// A refused probe is logged once for each client, and many clients cannot fill the log.
func TestRefusedProbesAreLoggedOnceForAClient(t *testing.T) {
	var f firsts
	logged := 0
	for i := range 1000 {
		for range 2 {
			if f.first(fmt.Sprint("client-", i)) {
				logged++
			}
		}
	}
	if logged != mostFirsts || len(f.names) != mostFirsts {
		t.Errorf("%d lines, %d names kept", logged, len(f.names))
	}
}

func FuzzGateways(f *testing.F) {
	f.Add("eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	f.Add("00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n")
	f.Add("Iface\tDestination\tGateway\n")
	f.Fuzz(func(t *testing.T, line string) {
		if a, ok := gateway4(line); ok && (!a.Is4() || a.IsUnspecified()) {
			t.Errorf("%q: %s", line, a)
		}
		if a, ok := gateway6(line); ok && (!a.Is6() || a.IsUnspecified()) {
			t.Errorf("%q: %s", line, a)
		}
	})
}
