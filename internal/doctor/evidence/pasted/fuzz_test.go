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
		"$ kubectl get pod a -o custom-columns=N:.metadata.name,C:.status.containerStatuses[*].name\nN  C\na  b,c\n", "[a]# kubectl\n~~~\n```\n", "PS C:\\>kubectl describe pod/a\nContainers:\n  b:\n    State: Running\n",
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
			p.Padded()
		}
		Is([]byte(text), false)
		Labelled([]byte(text))
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
	})
}
