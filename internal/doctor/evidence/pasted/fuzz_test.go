package pasted

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzRead checks that whatever a text is, its pieces lie within it, at the lines that they say, and that states are JSON.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		"```\n$ kubectl -n a get pods\nNAME READY STATUS RESTARTS AGE\nweb-0 1/2 Error 1 3m\n```\n", "x:\n\n    $ kubectl logs web-0 -c web \\\n      --previous\n    a\n",
		"> log of web:\n> > 10:00:00 a\n", "web state=map[waiting:map[reason:A message:b [c] d]] last=map[]\n", `{"containerStatuses":[{"name":"a","state":{"running":{}}}]}`,
		"$ kubectl get pod a -o jsonpath='{range .status.containerStatuses[*]}{.name}{\"\\t\"}{.state}{\"\\n\"}{end}'\nweb\t{\"running\":{}}\n",
		"$ kubectl get pod a -o custom-columns=N:.metadata.name,C:.status.containerStatuses[*].name\nN  C\na  b,c\n", "From: a\nk get po\nNAME READY STATUS RESTARTS AGE\nweb-0 1/1 Running 1 3m\n\nof that pod:\n2026-03-02T10:00:00Z x\n", "from describe (web container):\n    State:          Running\n    Restart Count:  1\n",
		"+ web-0 › a\nweb-0 a 2026-03-02T10:00:00Z x\nweb-0 b {\"a\":1}\n", "[pod/web-0/a] x\n[pod/web-0/b] y\n", "app:\n```\npanic: x\n```\n", "[a]# kubectl\n~~~\n```\n", "PS C:\\>kubectl describe pod/a\nContainers:\n  b:\n    State: Running\n",
		"web-0 is at 1/2 CrashLoopBackOff, restarts 7\nwork: Terminated/Error exit 3  mesh: Running\n", "x\n  containerStatuses:\n  - name: a\n    state: running: startedAt: \"2026-12-03T09:52:20Z\"\nend\n",
		"NAME READY STATUS RESTARTS AGE\nweb-0   0/1   Error   5 (91s ago)   6m\n(...)\nwhy?\n", "{pod=\"a\"}\n2026-01-15T13:05:10Z web  x\n2026-01-15T13:05:11Z mesh  y\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n") + 1
		for _, p := range Read([]byte(text)) {
			if p.Line < 0 || p.Line > lines || p.Form == None {
				t.Fatalf("%+v in %d lines", p, lines)
			}
			if p.Form == States && !json.Valid(p.Text) {
				t.Fatalf("%q", p.Text)
			}
			for i, n := range p.Lines {
				if n < 1 || n > lines || i > 0 && n <= p.Lines[i-1] {
					t.Fatalf("line %d of %d", n, lines)
				}
			}
			p.Padded()
		}
		Is([]byte(text), false)
		Labelled([]byte(text))
		IsProse([]byte(text))
		for _, p := range Streams([]byte(text)) {
			if n := strings.Count(string(p.Text), "\n"); n != len(p.Lines) || p.Pod == "" || p.Container == "" {
				t.Fatalf("%d lines: %+v", n, p)
			}
		}
		PodsOf([]byte(text))
	})
}

// FuzzNames checks that a name means none but the containers of the pod.
func FuzzNames(f *testing.F) {
	f.Add("web_before-restart.txt", "web", "istio-proxy")
	f.Add("PROXY.previous.log", "a", "b-proxy")
	f.Fuzz(func(t *testing.T, name, app, proxy string) {
		p := Pod{Name: "web-1", Namespace: "shop", Apps: []string{app}, Proxies: []string{proxy}}
		for _, read := range []func(string) (string, Run, bool){p.ByFile, p.ByHeading} {
			if c, _, ok := read(name); ok && c != app && c != proxy {
				t.Fatalf("%q of %q and %q: %q", name, app, proxy, c)
			}
		}
		for _, read := range []func(string) (string, string, Run, bool){p.PartOfFile, p.PartOfHeading} {
			if c, _, _, ok := read(name); ok && c != app && c != proxy {
				t.Fatalf("%q of %q and %q: %q", name, app, proxy, c)
			}
		}
	})
}
