package gather

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/evidence/partial"
)

// A pod is known by whatever names it, or shows its state, and of several the text is about the one that is meant.
func TestKnown(t *testing.T) {
	const (
		table = "NAME                      READY   STATUS             RESTARTS      AGE\n"
		web   = "web-6d4b75cb6d-hx9k2      1/2     CrashLoopBackOff   7 (58s ago)   19m\n"
		well  = "web-6d4b75cb6d-2kq8n      2/2     Running            0             3d\n"
		other = "mesh-agent-x7v2q   0/1   ImagePullBackOff   0   9m   10.1.0.9   node-2\n"
		event = "apiVersion: v1\nkind: Event\nmetadata: {name: e, namespace: shop}\ninvolvedObject: {kind: Pod, name: web-6d4b75cb6d-hx9k2, namespace: shop, fieldPath: 'spec.containers{web}'}\n"
		stern = "+ web-6d4b75cb6d-2kq8n › web\nweb-6d4b75cb6d-2kq8n web 2026-03-02T10:00:04.100Z ERROR connection refused\nweb-6d4b75cb6d-2kq8n proxy 2026-03-02T10:00:05.100Z INFO ready\n"
	)
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // names and rows, or containers
	}{
		"rows without a head":         {map[string]string{"a.txt": "half of them crash, see\n\n" + web + well + "(...)\n"}, "web-6d4b75cb6d-hx9k2 1/2 CrashLoopBackOff 7"},
		"rows before a command":       {map[string]string{"a.txt": table + web + "\n$ kubectl get po -n infra -o wide | grep mesh\n" + other}, "infra/mesh-agent-x7v2q 0/1 ImagePullBackOff 0, web-6d4b75cb6d-hx9k2 1/2 CrashLoopBackOff 7"},
		"a row in a block":            {map[string]string{"a.md": "it fails:\n\n```\n" + web + "panic: x\n```\n"}, "web-6d4b75cb6d-hx9k2 1/2 CrashLoopBackOff 7"},
		"rows of a mixed list":        {map[string]string{"a.txt": "$ kubectl -n shop get job,pod\nNAME              COMPLETIONS   DURATION   AGE\njob.batch/clean   0/1           3d         3d\n\n" + table + "pod/clean-wq4lp           1/2     NotReady           0             3d\n"}, "shop/clean-wq4lp 1/2 NotReady 0"},
		"beside a workload":           {map[string]string{"a.txt": "$ kubectl get pod\n" + web, "cron.yaml": "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web, namespace: shop}\n"}, "web-6d4b75cb6d-hx9k2 1/2 CrashLoopBackOff 7"},
		"one that restarted":          {map[string]string{"a.txt": table + well + strings.Replace(strings.Replace(web, "1/2", "2/2", 1), "CrashLoopBackOff", "Running         ", 1)}, "web-6d4b75cb6d-hx9k2 2/2 Running 7"},
		"one whose log is there":      {map[string]string{"a.txt": well + strings.Replace(well, "2kq8n", "99jdb", 1), "all.log": stern}, "web-6d4b75cb6d-2kq8n 2/2 Running 0"},
		"one that sentences name":     {map[string]string{"a.txt": "clean cannot reach web\n\n" + well + "clean-5f5d9c8d6c-vn8lw   1/1   Running   0   3h\n"}, "clean-5f5d9c8d6c-vn8lw 1/1 Running 0"},
		"words":                       {map[string]string{"a.txt": "hi, web-0 is at 1/2 CrashLoopBackOff since noon, restarts 7\n"}, "web-0 1/2 CrashLoopBackOff 7"},
		"words without a name":        {map[string]string{"a.txt": "the pod is 0/1 ImagePullBackOff\n"}, partial.NoName + " 0/1 ImagePullBackOff 0"},
		"states in words":             {map[string]string{"a.txt": "describe says  work: Terminated/Error exit 3   mesh: Running since noon\n", "b.txt": strings.Replace(well, "2/2", "1/2", 1)}, "web-6d4b75cb6d-2kq8n [work mesh]"},
		"statuses that were typed":    {map[string]string{"a.txt": "from a photo\n\n  containerStatuses:\n  - name: web\n    restartCount: 3\n    state: running: startedAt: \"2026-12-03T09:52:20Z\"\n    lastState:\n      terminated:\n        exitCode: 137\n        reason: OOMKilled\n\n  limits web: 2Gi\n"}, partial.NoName + " [web]"},
		"an event":                    {map[string]string{"a.yaml": event + "reason: BackOff\nmessage: Back-off restarting failed container web in pod x\n"}, "shop/web-6d4b75cb6d-hx9k2 [web]"},
		"a line of events":            {map[string]string{"a.txt": "we see\n6m5s    Warning   Unhealthy   pod/web-0   Readiness probe failed: x\n6m5s    Normal   Killing   pod/web-1   Stopping container web\n"}, "web-0 []"},
		"prefixes of kubectl":         {map[string]string{"a.log": "[pod/web-0/web] a\n[pod/web-0/web] b\n"}, "web-0 [web]"},
		"a query":                     {map[string]string{"a.txt": "# {namespace=\"shop\", pod=\"web-0\"} |~ \"\"\n2026-01-15T13:05:10.004Z web  stop\n2026-01-15T13:05:10.011Z mesh    bye\n2026-01-15T13:05:12.390Z web  error: x\n2026-01-15T13:05:12.391Z web  y\n"}, "shop/web-0 [mesh web]"},
		"a log that says what failed": {map[string]string{"shop.log": "hello\nFATAL: no such table\n", "shop.txt": "just words\n"}, partial.NoName + " [shop]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := read(t, Options{}, folder(t, tt.files))
			var got []string
			for _, p := range s.Pods {
				if r := p.Row; r != nil {
					got = append(got, fmt.Sprintf("%s %d/%d %s %d", p.Name(), r.Ready, r.Of, r.Status, r.Restarts))
					continue
				}
				var names []string
				for _, c := range p.Containers {
					names = append(names, c.Name)
				}
				if strings.HasPrefix(tt.want, "shop/web-0") { // the order of its lines says nothing
					slices.Sort(names)
				}
				got = append(got, fmt.Sprint(p.Name(), " ", names))
			}
			if all := strings.Join(got, ", "); all != tt.want {
				t.Errorf("%s, want %s; unused %v", cmp.Or(all, "none"), tt.want, s.Unused)
			}
		})
	}
}

// A text that names no pod, and says of nothing that it failed, is of none.
func TestNotKnown(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"sentences":         {"a.txt": "our pod is broken, please look at ticket 1/2\n"},
		"a log of no fault": {"a.log": "started\nlistening\n"},
		"a workload":        {"a.txt": "web   3/3   3   3   5d\n"},
		"states of nothing": {"a.txt": "status: Running\nphase: Running\nthe queue: Running\n"},
	} {
		if s, err := Read(t.Context(), Options{}, folder(t, files)); err == nil {
			t.Errorf("%s: %+v", name, s.Pods[0])
		}
	}
}

// A text that says of a failure what is in no piece of it keeps a line from looking well.
func TestUnread(t *testing.T) {
	const row = "$ kubectl get pod\nweb-0   1/1   Running   0   3h\n\n"
	for more, want := range map[string]int{"it says this:\n\nUnhandled exception in worker: no such table\n": 1, "it is slow, why?\n": 0} {
		p := one(t, map[string]string{"a.md": row + more})
		n := 0
		for _, m := range p.Missing {
			if m.Why == "a part of it is not used" {
				n++
			}
		}
		if n != want {
			t.Errorf("%q: %+v", more, p.Missing)
		}
	}
}

// The pod of a Job has its owner by its name, if the evidence has the Job, or the CronJob that makes it.
func TestOwnerByName(t *testing.T) {
	const pod = "clean-27952560-wq4lp   1/2   NotReady   0   3d\n"
	for kind, want := range map[string]int{"CronJob": 1, "Deployment": 0} {
		p := one(t, map[string]string{"a.txt": "$ kubectl get pod\n" + pod, "b.yaml": "kind: " + kind + "\nmetadata: {name: clean, namespace: shop}\n"})
		if len(p.Object.OwnerReferences) != want {
			t.Errorf("%s: %+v", kind, p.Object.OwnerReferences)
		}
	}
}
