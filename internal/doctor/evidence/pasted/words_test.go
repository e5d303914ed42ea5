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
		"orders-6cbb7f8d66-abcde_linkerd-proxy.log": "", "orders-db.log": "", "orders and linkerd-proxy.log": "", "app.log": "", "sidecar.log": "", "previous.log": "", "payments proxy.log": "", "proxy-config.txt": "", "ingress orders.log": "", "nginx.log": "",
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
