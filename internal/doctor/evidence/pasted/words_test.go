package pasted

import (
	"fmt"
	"testing"
)

// Names of files in many styles mean a container, and a run; a word of something else, or two containers, mean none.
func TestByFile(t *testing.T) {
	pod := Pod{Name: "orders-6cbb7f8d66-x2lqm", Namespace: "shop", Apps: []string{"orders", "orders-worker"}, Proxies: []string{"linkerd-proxy"}, Others: []string{"init-db"}}
	for name, want := range map[string]string{
		"orders_before-restart.txt": "orders 2", "orders-worker-logs-previous.txt": "orders-worker 2", "linkerd-proxy_prev.log": "linkerd-proxy 2", "proxy errors.log": "linkerd-proxy 0", "PROXY.previous.log": "linkerd-proxy 2",
		"x2lqm proxy (tail).txt": "linkerd-proxy 0", "orders-worker (after the restart).log": "orders-worker 1", "first run orders-worker.txt": "orders-worker 3", "orders-worker.log.1st-start": "orders-worker 3", "orders-worker -p.txt": "orders-worker 2",
		"Linkerd-Proxy - OLD.log": "linkerd-proxy 2", "kubectl logs orders-worker now.out": "orders-worker 1", "orders-6cbb7f8d66-x2lqm_linkerd-proxy_tail.log": "linkerd-proxy 0", "init_db-last.txt": "init-db 2", "mesh.crash.txt": "linkerd-proxy 2",
		"orders-6cbb7f8d66-abcde_linkerd-proxy.log": "", "orders-db.log": "", "orders and linkerd-proxy.log": "", "orders_linkerd-proxy.log": "", "app.log": "", "sidecar.log": "", "previous.log": "", "payments proxy.log": "", "proxy-config.txt": "", "ingress orders.log": "", "nginx.log": "",
	} {
		got := ""
		if c, run, ok := pod.ByFile(name); ok {
			got = fmt.Sprintf("%s %d", c, run)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Below a heading only a log counts that it announces, of the pod; lines name a container only if they agree.
func TestHeadings(t *testing.T) {
	const dated = "```\n2026-03-02T10:00:04Z connection refused\n```\n"
	for text, want := range map[string]int{
		"web before the restart:\n\n" + dated: 1, "the same on staging, web:\n\n" + dated: 0, "web, last week:\n\n" + dated: 0, dated: 1,
		"log of web:\n\n```\nconnection refused\n```\n": 1, "web:\n\n```\nconnection refused\n```\n": 0, "output of web:\n\n```\nreplicas: 3\n```\n": 0,
	} {
		if got := len(Read([]byte(text))); got != want {
			t.Errorf("%q: %d pieces", text, got)
		}
	}
	if p := Read([]byte(dated)); p[0].Heading != Unheaded {
		t.Errorf("below no heading: %+v", p)
	}
	for lines, want := range map[string]bool{"{container=\"a\"} x\n{container=\"a\"} y\n": true, "{container=\"a\"} x\n{container=\"b\"} y\n": false, "{container=\"a\"} x\ny\n": false, "": false} {
		if _, _, ok := Labelled([]byte(lines)); ok != want {
			t.Errorf("%q: %v", lines, ok)
		}
	}
	two := Pod{Name: "web-1", Apps: []string{"web"}, Proxies: []string{"istio-proxy", "cloud-sql-proxy"}}
	if c, _, ok := two.ByFile("mesh.log"); ok {
		t.Errorf("one of two proxies: %s", c)
	}
}
