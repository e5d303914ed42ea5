package gather

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/ops/bugreport"
	"outrider.dev/internal/ops/kubeclient"
)

//go:embed testdata/awesome.txtar
var awesomeFiles []byte

// handmade returns the files, by name, of a folder in which a person collected the facts about a pod.
func handmade() map[string]string {
	out := map[string]string{}
	for _, f := range txtar.Parse(awesomeFiles).Files {
		out[f.Name] = string(f.Data)
	}
	return out
}

var (
	awesome, eventList, newerEvent    = handmade()["pod.yaml"], handmade()["events.yaml"], handmade()["event.json"]
	previousLog, currentLog, proxyLog = handmade()["app.previous.log"], handmade()["app.log"], handmade()["istio-proxy.log"]
	replicaSet, journal               = handmade()["replicaset.json"], handmade()["startup.json"]
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tarGz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	return gzipped(t, tarOf(t, files))
}

// tarOf returns a tar archive that contains the files, and an entry for each header. It fills the regular files among
// these entries with x, up to the size in the header.
func tarOf(t *testing.T, files map[string]string, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	write := func(h tar.Header, text string) {
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, text)
	}
	for _, h := range headers {
		write(h, strings.Repeat("x", int(h.Size)))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		write(tar.Header{Name: name, Size: int64(len(files[name]))}, files[name])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t *testing.T, o Options, paths ...string) *evidence.Set {
	t.Helper()
	s, err := Read(t.Context(), o, paths...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// summary formats the evidence of a pod as lines.
func summary(t *testing.T, p *evidence.Pod) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s\n", p.Name())
	for _, c := range p.Containers {
		for _, r := range c.Runs {
			end := "not known"
			switch {
			case r.Running:
				end = "running"
			case r.Exit != nil:
				end = fmt.Sprintf("%s exit %d signal %d %q", show(r.Finished)[11:], *r.Exit, r.Signal, r.Message)
			}
			fmt.Fprintf(&b, "%s run %d: %s to %s\n", c.Name, r.Number, show(r.Started)[11:], end)
		}
		for _, l := range c.Logs {
			_, last, err := l.Scan(t.Context(), nil)
			if err != nil || len(last) == 0 || last[0].Number != 1 {
				t.Fatal(err, len(last))
			}
			lines, first := last[len(last)-1].Number, fmt.Sprintf("%s ±%s %s", show(last[0].Time)[11:], last[0].Time.Error, last[0].Time.Clock)
			fmt.Fprintf(&b, "%s %s of run %d: %d lines, first %s\n", c.Name, l.Source.Kind, l.Run, lines, first)
		}
	}
	return b.String()
}

const wantAwesome = `pod shop/awesome-app
istio-init run 0: 13:16:17Z to 13:16:18Z exit 0 signal 0 ""
app run 0: 13:16:19Z to not known
app run 1: 13:16:22Z to 13:16:23Z exit 1 signal 0 "Connection refused"
app run 2: 13:16:36Z to running
app previous log of run 1: 4 lines, first 13:16:22.803Z ±1ms node
app log of run 2: 2 lines, first 13:16:37.001Z ±1ms node
istio-proxy run 0: 13:16:20Z to running
istio-proxy log of run 0: 2 lines, first 13:16:20.480123Z ±1µs node
`

func TestHandMadeFolder(t *testing.T) {
	s := read(t, Options{}, folder(t, handmade()))
	if len(s.Pods) != 1 || len(s.Unused) != 1 || filepath.Base(s.Unused[0].Source.File) != "envoy-stats.txt" {
		t.Fatalf("%d pods, unused %v", len(s.Pods), s.Unused)
	}
	p := s.Pods[0]
	if diff := cmp.Diff(wantAwesome, summary(t, p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if z := p.Container("app").Zone; !z.Known || z.Offset != 8*time.Hour {
		t.Errorf("zone %+v: the previous run places the current one too", z)
	}
	var events []string
	for _, e := range p.Events {
		events = append(events, fmt.Sprintf("%s %s %s ×%d %s..%s ±%s %s", e.Reason, e.Container, e.Reporter, e.Count, show(e.First)[11:], show(e.Last)[11:], e.First.Error, e.First.Clock))
	}
	if diff := cmp.Diff([]string{
		"SuccessfulCreate  replicaset-controller ×4 13:16:15.000001Z..13:16:18.5Z ±1µs API server",
		"Scheduled  default-scheduler ×1 13:16:15.123456Z..13:16:15.123456Z ±1µs API server",
		"Started app kubelet ×3 13:16:19Z..13:16:36Z ±1s node",
	}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(p.Owners) != 2 || p.Owners[0].Name != "awesome-app-7d9" || p.Owners[0].Object == nil || p.Owners[1].Kind != "Deployment" || p.Owners[1].Object != nil {
		t.Errorf("owners %+v", p.Owners)
	}
	if j := p.Journal; j == nil || len(j.Entries) != 2 || show(j.Entries[0].End) != "2026-11-24T13:16:22.2Z" || j.Entries[1].End.Known() {
		t.Errorf("journal %+v", j)
	}
	want := []evidence.Missing{{Kind: evidence.FromOwner, What: "Deployment shop/awesome-app", Why: "it is not among the evidence"}, {Kind: evidence.FromLog, What: "log of container istio-init", Why: "it is not among the evidence"}}
	if diff := cmp.Diff(want, p.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if len(p.Notes) > 0 {
		t.Errorf("notes %v", p.Notes)
	}
}

// From the same facts, Read builds the same pod, whatever the layout of the files.
func TestLayouts(t *testing.T) {
	list := `{"kind": "PodList", "apiVersion": "v1", "items": []}` + "\n"
	section := func(c, log string) string {
		return "==== START logs for container " + c + " of pod shop/awesome-app ====\n" + log + "==== END logs for container " + c + " of pod shop/awesome-app ====\n"
	}
	gather := "quay-io-openshift/namespaces/shop/pods/awesome-app/"
	noPrevious := strings.ReplaceAll(wantAwesome, "app previous log of run 1: 4 lines, first 13:16:22.803Z ±1ms node\n", "")
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"kubectl cluster-info dump": {map[string]string{"nodes.json": `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n1"}}]}`, "shop/pods.json": list, "shop/pods.yaml": awesome, "shop/events.yaml": eventList,
			"shop/awesome-app/logs.txt": section("app", currentLog) + section("istio-proxy", proxyLog)},
			// Without the log of the previous run, every offset that puts the log after the start is possible, so the
			// time zone remains unknown.
			strings.Replace(noPrevious, "13:16:37.001Z ±1ms node", "21:16:37.001Z ±1ms log FILE", 1)},
		"must-gather": {map[string]string{gather + "awesome-app.yaml": "---\n" + awesome, gather + "app/app/logs/current.log": currentLog, gather + "app/app/logs/previous.log": previousLog,
			gather + "app/app/logs/previous.insecure.log": "", gather + "istio-proxy/istio-proxy/logs/current.log": proxyLog, gather + "istio-proxy/istio-proxy/logs/previous.log": "", "quay-io-openshift/namespaces/shop/core/events.yaml": eventList, "event-filter.html": "<html>"}, wantAwesome},
		"a node's folder of logs": {map[string]string{"pod.yaml": awesome, "events.yaml": eventList, "shop_awesome-app_5d3f2a54-0000-0000-0000-000000000001/app/1.log": previousLog,
			"shop_awesome-app_5d3f2a54-0000-0000-0000-000000000001/app/2.log": currentLog, "shop_awesome-app_5d3f2a54-0000-0000-0000-000000000001/istio-proxy/0.log": proxyLog}, strings.ReplaceAll(wantAwesome, "previous log", "log")},
		"pods beside each other": {map[string]string{"pods.yaml": awesome + "---\n" + strings.ReplaceAll(strings.ReplaceAll(awesome, "awesome-app", "other"), "app, ", "web, "), "events.yaml": eventList,
			"awesome-app_app.log": currentLog, "awesome-app-app.previous.log": previousLog, "awesome-app.istio-proxy.log": proxyLog}, wantAwesome},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, path := range map[string]string{"folder": folder(t, tt.files), "archive": filepath.Join(folder(t, map[string]string{"a.tgz": string(tarGz(t, tt.files))}), "a.tgz")} {
				s := read(t, Options{}, path)
				got := summary(t, s.Pods[0])
				for _, l := range s.Pods[0].Container("app").Logs {
					got = strings.ReplaceAll(got, l.Source.File, "FILE")
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s\n%v", kind, diff, s.Unused)
				}
			}
		})
	}
}

// Read accepts lists and logs in one stream, as kubectl cluster-info dump prints them.
func TestStandardInput(t *testing.T) {
	dump := `{
    "kind": "PodList",
    "apiVersion": "v1",
    "items": [{"metadata":{"name":"a","namespace":"shop"},"spec":{"containers":[{"name":"app"}]}}]
}
==== START logs for container app of pod shop/a ====
{"level":"info","time":1795490299480,"msg":"x"}
==== END logs for container app of pod shop/a ====
{
    "kind": "EventList",
    "apiVersion": "v1",
    "items": []
}
`
	s := read(t, Options{Stdin: strings.NewReader(dump)}, "-")
	if len(s.Pods) != 1 || len(s.Pods[0].Container("app").Logs) != 1 || len(s.Unused) > 0 {
		t.Errorf("%+v, unused %v", s.Pods[0].Container("app"), s.Unused)
	}
}

// Read lists the input that it cannot use, and says what would be useful instead.
func TestUnused(t *testing.T) {
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: app}]}\n"
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // file and reason in one line
	}{
		"a log of another container":    {map[string]string{"web.log": "x"}, `web.log: it is not named after a container of a pod beside it, as CONTAINER.log or CONTAINER.previous.log (app)`},
		"logs of two pods":              {map[string]string{"other.yaml": pod("b"), "app.log": "x"}, "app.log: pods a, b have a container of this name: name the file POD_CONTAINER.log, or give each pod a folder"},
		"a log of a pod without object": {map[string]string{"namespaces/x/pods/y/c/c/logs/current.log": "x"}, "current.log: no pod of the evidence is x/y; want its object beside the log"},
		"a description of a service":    {map[string]string{"describe.txt": "Name:         a\nNamespace:    shop\nType: ClusterIP\n"}, "describe.txt: it is not named after a container"},
		"a picture":                     {map[string]string{"a.png": "\x89PNG"}, `a.png: .png is neither the name of objects`},
		"YAML that is none":             {map[string]string{"b.yaml": "a: [\n"}, "b.yaml:1: this is not YAML"},
		"JSON that ends too early":      {map[string]string{"b.json": "{\"kind\":\n"}, "b.json:1: this is not JSON from here on"},
		"a number that is a text":       {map[string]string{"b.yaml": "---\n" + strings.Replace(pod("b"), "spec:", "status: {containerStatuses: [{name: app, restartCount: many}]}\nspec:", 1)}, `b.yaml:2: Pod: status.containerStatuses[0].restartCount: must be a whole number, not a string`},
		"a pod without containers":      {map[string]string{"b.yaml": "kind: Pod\nmetadata: {name: b}"}, "b.yaml:1: Pod b: it has neither containers nor a status"},
		"a list":                        {map[string]string{"b.yaml": "- a"}, "b.yaml:1: this is no Kubernetes object"},
		"a zip":                         {map[string]string{"b.zip": "PK\x03\x04x"}, "b.zip: a zip is not read"},
		"a tar that is none":            {map[string]string{"b.tar": "hello"}, "b.tar: it is no archive of tar or gzip"},
		"a log that is compressed":      {map[string]string{"app.log.gz": "\x1f\x8bxx"}, "app.log.gz: it begins as gzip does, and is none"},
		"an object of no API server":    {map[string]string{"b.yaml": strings.Replace(pod("b"), "spec:", "status: {message: "+strings.Repeat("x", maxObject)+"}\nspec:", 1)}, "b.yaml:1: an object has more than 4 MiB, as none"},
		"a part of no API server":       {map[string]string{"b.json": `{"status": {"message": "` + strings.Repeat("x", maxObject) + `"}}`}, "b.json:1: an object has more than 4 MiB"},
		"an object of many parts":       {map[string]string{"b.json": `{"kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[` + strings.Repeat("{},", maxParts) + "{}]}}"}, "b.json:1: an object has more than 4 MiB or 65536 parts"},
		"a list in lists":               {map[string]string{"b.json": strings.Repeat(`{"kind":"List","items":[`, 4) + strings.Repeat("]}", 4)}, "b.json:1: it has lists in lists in lists"},
		"a list of very many":           {map[string]string{"b.json": `{"kind":"List","items":[` + strings.Repeat("1,", maxCommas+1) + "1]}"}, "b.json: it has more than 4194304 values"},
		"more containers than any":      {map[string]string{"b.yaml": strings.Replace(pod("b"), "[", "["+strings.Repeat("{name: c},", maxContainers), 1)}, "b.yaml:1: Pod b: it has more than 1000 containers"},
		"a journal of no process":       {map[string]string{"b.json": `{"process_started":"0001-01-01T00:00:00Z"}`}, "b.json:1: startup journal: process_started: missing"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.files["pod.yaml"] = pod("a")
			dir := folder(t, tt.files)
			s := read(t, Options{}, dir)
			if len(s.Unused) != 1 {
				t.Fatalf("%v", s.Unused)
			}
			if got := strings.TrimPrefix(s.Unused[0].Source.String(), dir+"/") + ": " + s.Unused[0].Why; !strings.Contains(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestManyNotes(t *testing.T) {
	b := newBundle(1 << 20)
	b.parse("", "a.json", []byte(`{"kind":"List","items":[`+strings.Repeat("1,", maxNotes+9)+"1]}"))
	if n := len(b.left); n != maxNotes+1 || b.left[maxNotes].Why != "this, and more that is not listed" {
		t.Errorf("%d notes, the last is %v", n, b.left[n-1])
	}
}

func TestBadInput(t *testing.T) {
	dir := folder(t, map[string]string{"app.log": "x", "plain.txt": "x", "many/1.log": "", "many/2.log": "", "many/3.log": "", "half.gz": "\x1f\x8b\x08",
		"sections.txt": strings.Repeat("==== START logs for container a of pod b/c ====\n", 3)})
	for name, tt := range map[string]struct {
		path, want string
	}{
		"nothing there":     {"none", "no such file or directory"},
		"no pod":            {"app.log", "no pod in it; want the object of a pod, as kubectl get pod NAME -o yaml prints it"},
		"too many files":    {"many", "many: there are more than 2 files"},
		"too many sections": {"sections.txt", "sections.txt: there are more than 2 files"},
		"half a header":     {"half.gz", "half.gz: it begins as gzip does, and is none"},
		"no standard input": {"-", "needs a standard input"},
	} {
		t.Run(name, func(t *testing.T) {
			path := tt.path
			if path != "-" {
				path = filepath.Join(dir, path)
			}
			s, err := Read(t.Context(), Options{Files: 2}, path)
			if s != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// A hostile archive is refused. The error names the entry and the limit that it exceeds.
func TestHostileArchives(t *testing.T) {
	pod := map[string]string{"pod.yaml": awesome}
	deep := strings.Repeat("d/", 65) + "f.log"
	many := []tar.Header{{Name: "1"}, {Name: "2"}, {Name: "3"}, {Name: "4"}}
	folders := slices.Repeat([]tar.Header{{Name: "d/", Typeflag: tar.TypeDir}}, 13)
	for name, tt := range map[string]struct {
		o    Options
		text []byte
		want string
	}{
		"deep folders":          {Options{}, tarOf(t, pod, tar.Header{Name: deep}), fmt.Sprintf("entry %q: it is in more than 64 folders in one another", deep)},
		"a long name":           {Options{}, tarOf(t, pod, tar.Header{Name: strings.Repeat("x", 4097)}), "its path has more than 4096 bytes"},
		"many files":            {Options{Files: 3}, tarOf(t, pod, many...), `entry "4": there are more than 3 files`},
		"many folders":          {Options{Files: 3}, tarOf(t, pod, folders...), `entry "d/": it is after 12 folders`},
		"a large file":          {Options{Entry: 1 << 20}, tarOf(t, pod, tar.Header{Name: "a.log", Size: 1<<20 + 1}), `entry "a.log": it has more than 1 MiB`},
		"a file of zeros":       {Options{}, gzipped(t, tarOf(t, pod, tar.Header{Name: "a.log", Size: 70 << 20})), `entry "a.log": it unpacks to more than 200 times its size`},
		"a text of zeros":       {Options{}, gzipped(t, make([]byte, 70<<20)), "standard input: it unpacks to more than 200 times its size"},
		"more than all may be":  {Options{Unpack: 1 << 10}, tarOf(t, pod), `after entry "": all unpacks to more than 0 MiB`},
		"more than memory":      {Options{Memory: 1 << 10}, tarOf(t, pod, tar.Header{Name: "a.log", Size: 1 << 20}), `entry "a.log": with it, the files of archives take more than 0 MiB of memory`},
		"a long standard input": {Options{Entry: 1 << 20}, bytes.Repeat([]byte("x"), 1<<20+1), "standard input: it has more than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Stdin = bytes.NewReader(tt.text)
			s, err := Read(t.Context(), tt.o, "-")
			if s != nil || err == nil || !strings.HasPrefix(err.Error(), "standard input: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// If an archive is damaged, the files before the damage are used. Entries whose paths lead out of the archive, and
// links, are ignored. Nothing is written to disk.
func TestArchives(t *testing.T) {
	files := handmade()
	files["zzz.log"] = strings.Repeat("not much to compress "+previousLog, 100)
	whole := tarGz(t, files)
	cut := filepath.Join(folder(t, map[string]string{"cut.tar.gz": string(whole[:len(whole)-60])}), "cut.tar.gz")
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	s := read(t, Options{}, cut)
	if len(s.Unused) == 0 || !strings.Contains(s.Unused[0].Why, "damaged or ends too early") || len(s.Pods[0].Container("app").Logs) != 2 {
		t.Errorf("%v", s.Unused)
	}
	s = read(t, Options{Stdin: bytes.NewReader(tarOf(t, map[string]string{"pod.yaml": awesome}, tar.Header{Name: "../evil.log", Size: 1}, tar.Header{Name: "/etc/evil.log", Size: 1}, tar.Header{Name: "link.log", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		tar.Header{Name: "hard.log", Typeflag: tar.TypeLink, Linkname: "pod.yaml"}, tar.Header{Name: "null.log", Typeflag: tar.TypeChar}, tar.Header{Name: "pod.yaml/in/app.log", Size: 1}, tar.Header{Name: "in/.hidden/x.log", Size: 1}, tar.Header{Name: ".", Size: 1}))}, "-")
	var got []string
	for _, u := range s.Unused {
		got = append(got, strings.TrimPrefix(u.Source.File, "standard input:")+": "+u.Why)
	}
	const link = ": it is no regular file: links of archives are not followed"
	want := []string{"../evil.log: its path leads out of the archive", "/etc/evil.log: its path is absolute", "link.log" + link, "hard.log" + link, "null.log" + link, ".: its path leads out of the archive"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An archive with a wrong checksum is used, with a note that it is damaged. Two concatenated archives are read as
// one.
func TestArchiveToItsEnd(t *testing.T) {
	whole := tarGz(t, handmade())
	wrong := bytes.Clone(whole)
	wrong[len(wrong)-6] ^= 1 // a byte of the checksum in gzip's trailer
	s := read(t, Options{Stdin: bytes.NewReader(wrong)}, "-")
	if len(s.Unused) == 0 || !strings.Contains(s.Unused[0].Why, "damaged or ends too early (gzip: invalid checksum)") || len(s.Pods) != 1 {
		t.Errorf("%v", s.Unused)
	}
	second := tarGz(t, map[string]string{"b/pod.yaml": strings.ReplaceAll(awesome, "awesome-app", "b")})
	if s := read(t, Options{Stdin: bytes.NewReader(slices.Concat(whole, second))}, "-"); len(s.Pods) != 2 || len(s.Unused) != 1 { // Envoy's statistics
		t.Errorf("%d pods, %v", len(s.Pods), s.Unused)
	}
}

// The limit of unpacked bytes holds for all archives together.
func TestArchivesTogether(t *testing.T) {
	dir := folder(t, map[string]string{"a.tar": string(tarOf(t, nil, tar.Header{Name: "a.log", Size: 600 << 10}))})
	a := filepath.Join(dir, "a.tar")
	_, err := Read(t.Context(), Options{Unpack: 1 << 20}, a, a)
	if want := a + `: entry "a.log": all unpacks to more than 1 MiB`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A large list is decoded item by item, and the result contains all items.
func TestLargeList(t *testing.T) {
	for name, tt := range map[string]struct{ list, item string }{
		"as kubectl prints it": {"apiVersion: v1\nitems:\n%skind: PodList\nmetadata: {resourceVersion: ''}\n", "- metadata:\n    name: p%d\n    annotations: {a: '%s'}\n  spec:\n    containers:\n    - name: app\n"},
		"indented":             {"kind: List\nitems:\n%s", "  - kind: Pod\n    metadata: {name: p%d, annotations: {a: '%s'}}\n    spec:\n      containers:\n      - {name: app}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var items strings.Builder
			for i := range 10 {
				fmt.Fprintf(&items, tt.item, i, strings.Repeat("x", maxObject/9))
			}
			file := filepath.Join(folder(t, map[string]string{"pods.yaml": fmt.Sprintf(tt.list, items.String())}), "pods.yaml")
			if s := read(t, Options{}, file); len(s.Pods) != 10 || len(s.Unused) > 0 || s.Pods[9].Containers[0].Name != "app" || s.Pods[9].Source.Line != 1 {
				t.Errorf("%d pods, unused %v", len(s.Pods), s.Unused)
			}
			if s := read(t, Options{Memory: 1 << 20}, file); len(s.Pods) == 0 || len(s.Pods) == 10 || len(s.Unused) != 1 || !strings.Contains(s.Unused[0].Why, "take more than 2 MiB of memory") {
				t.Errorf("%d pods, unused %v", len(s.Pods), s.Unused)
			}
		})
	}
}

func TestLinksOutOfAFolder(t *testing.T) {
	dir := folder(t, map[string]string{"in/pod.yaml": awesome, "secret/app.log": "x"})
	if err := os.Symlink("../secret/app.log", filepath.Join(dir, "in", "app.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pod.yaml", filepath.Join(dir, "in", "same.yaml")); err != nil {
		t.Fatal(err)
	}
	s := read(t, Options{}, filepath.Join(dir, "in"))
	if len(s.Pods) != 1 || len(s.Unused) != 1 || !strings.Contains(s.Unused[0].Why, "a link out of the folder") {
		t.Errorf("%v", s.Unused)
	}
}

// Read accepts a report that outrider bug-report has written: its pods, logs and events.
func TestBugReport(t *testing.T) {
	core := shop(t)
	pod, err := core.CoreV1().Pods("shop").Get(t.Context(), "awesome-app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.Containers[1].Name = contract.ProxyContainer
	pod.Spec.Containers[1].Args = []string{"proxy", "sidecar"}
	if _, err := core.CoreV1().Pods("shop").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err = bugreport.Write(t.Context(), &b, bugreport.Options{
		Client: &kubeclient.Client{Core: core, Progress: cli.NewProgress(io.Discard), Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme.Scheme, map[schema.GroupVersionResource]string{{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "List"})}, ControlPlane: "outrider-system", Namespace: "shop",
		Checks: func(context.Context) (any, error) { return nil, nil }, Values: func(context.Context) (map[string]any, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	p := read(t, Options{Stdin: &b}, "-").Pods[0]
	if p.Name() != "shop/awesome-app" || len(p.Events) != 1 || !p.Taken.Known() || len(p.Container("app").Logs) != 2 {
		t.Errorf("%s: events %v, taken %v, logs of app %v", p.Name(), p.Events, p.Taken, p.Container("app").Logs)
	}
}

// The logs that a bug report lists as failed or truncated become missing evidence of the pod.
func TestGapsOfABugReport(t *testing.T) {
	files := handmade()
	files["index.json"] = `{"format": 1, "made": "2026-11-24T13:20:00Z", "files": [{"path": "app.log", "kind": "log", "truncated": true}]}`
	files["errors.txt"] = "log of shop/awesome-app, istio-init.log: container is gone\n"
	p := read(t, Options{}, folder(t, files)).Pods[0]
	for _, want := range []evidence.Missing{{Kind: evidence.FromLog, What: "log of container istio-init", Why: "container is gone"}, {Kind: evidence.FromLog, What: "the rest of the log of container app, run 2", Why: "truncated"}} {
		if !slices.Contains(p.Missing, want) {
			t.Errorf("%v is not in %v", want, p.Missing)
		}
	}
}

// Runs are numbered by the container's state, and contradictions between times are noted.
func TestStatus(t *testing.T) {
	const head = "kind: Pod\nmetadata: {name: a, creationTimestamp: \"2026-11-24T13:00:00Z\"}\nspec: {nodeName: n1, containers: [{name: app}]}\nstatus:\n"
	const run = `startedAt: "2026-11-24T13:00:05Z", finishedAt: "2026-11-24T13:00:09Z"`
	kubelet := func(recorded, first string) string {
		return "---\n" + fmt.Sprintf("kind: Event\nmetadata: {name: e, creationTimestamp: %q}\ninvolvedObject: {kind: Pod, name: a}\nreason: Pulled\nfirstTimestamp: %q\nsource: {component: kubelet}\n", recorded, first)
	}
	for name, tt := range map[string]struct{ pod, want string }{
		"it waits to be restarted: the last state is of the newest run": {
			head + "  containerStatuses: [{name: app, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, " + run + "}}}]",
			"run 3 signal 9; 3 unknown; waiting CrashLoopBackOff; note: container app: of 3 of its runs nothing is known; the API keeps the last two"},
		"it has ended, and so had the one before": {
			head + "  containerStatuses: [{name: app, restartCount: 1, state: {terminated: {exitCode: 0, " + run + "}}, lastState: {terminated: {exitCode: 2, " + run + "}}}]",
			"run 0 signal 0; run 1 signal 0; note: container app: run 1 started 2026-11-24T13:00:05Z, before run 0 finished 2026-11-24T13:00:09Z"},
		"it has not started":       {head + "  containerStatuses: [{name: app, restartCount: 0, state: {waiting: {reason: ImagePullBackOff}}}]", "waiting ImagePullBackOff"},
		"it could not be started":  {head + `  containerStatuses: [{name: app, restartCount: 0, state: {terminated: {exitCode: 128, reason: StartError, startedAt: "1970-01-01T00:00:00Z", finishedAt: "2026-11-24T13:00:09Z"}}}]`, "run 0 signal 0"},
		"it has no status":         {head + "  phase: Pending", ""},
		"it ended before it began": {head + `  containerStatuses: [{name: app, restartCount: 0, state: {terminated: {exitCode: 1, startedAt: "2026-11-24T13:00:09Z", finishedAt: "2026-11-24T13:00:05Z"}}}]`, "run 0 signal 0; note: container app, run 0: finished 2026-11-24T13:00:05Z, before it started 2026-11-24T13:00:09Z"},
		"the node's clock is ahead": {head + `  startTime: "2026-11-24T13:05:00Z"` + "\n" + kubelet("2026-11-24T13:00:01Z", "2026-11-24T13:05:01Z") + kubelet("2026-11-24T13:00:50Z", "2026-11-24T13:05:02Z"),
			"note: the clock of node n1 is ahead of the API server's by 4m59s or more"},
		"the node's clock is behind": {head + `  startTime: "2026-11-24T12:55:00Z"` + "\n" + kubelet("2026-11-24T13:00:01Z", "2026-11-24T12:55:01Z"),
			"note: the clock of node n1 is behind the API server's by 4m59s or more"},
		"the clocks agree, and an event is late": {head + `  startTime: "2026-11-24T13:00:00Z"` + "\n" + kubelet("2026-11-24T13:00:30Z", "2026-11-24T13:00:01Z"), ""},
		"a clock was set meanwhile": {head + `  startTime: "2026-11-24T12:55:00Z"` + "\n" + kubelet("2026-11-24T13:00:01Z", "2026-11-24T13:05:01Z"),
			"note: no difference between the clocks of node n1 and API server explains both FILE:7 and FILE:1: one of the clocks was set meanwhile"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, map[string]string{"pod.yaml": tt.pod})
			p := read(t, Options{}, dir).Pods[0]
			c := p.Container("app")
			var got []string
			for _, r := range c.Runs {
				got = append(got, fmt.Sprintf("run %d signal %d", r.Number, r.Signal))
			}
			if c.Unknown > 0 {
				got = append(got, fmt.Sprintf("%d unknown", c.Unknown))
			}
			if c.Waiting != nil {
				got = append(got, "waiting "+c.Waiting.Reason)
			}
			for _, n := range p.Notes {
				got = append(got, "note: "+strings.ReplaceAll(n.Text, dir+"/pod.yaml", "FILE"))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func show(t evidence.Time) string { return t.At.Format(time.RFC3339Nano) }

// Of ConfigMaps and Secrets the times are kept, and nothing else.
func TestConfigs(t *testing.T) {
	const text = `kind: Secret
apiVersion: v1
metadata: {name: key, namespace: shop, creationTimestamp: 2026-11-01T00:00:00Z, managedFields: [{manager: a, time: 2026-11-02T00:00:00Z}, {manager: b, time: 2026-11-03T00:00:00Z}, {manager: c, time: 2026-11-02T00:00:00Z}]}
data: {k: c2VjcmV0}
---
kind: ConfigMap
apiVersion: v1
metadata: {name: [], namespace: shop}
---
kind: ConfigMap
apiVersion: other/v1
metadata: {name: other}
---
kind: Event
apiVersion: v1
metadata: {name: e, namespace: shop}
involvedObject: {kind: ConfigMap, name: seen, namespace: shop}
reason: Updated
message: by hand
firstTimestamp: 2026-11-04T00:00:00Z
---
kind: Pod
apiVersion: v1
metadata: {name: web, namespace: shop}
spec: {containers: [{name: app}]}
`
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), Options{}, file)
	if err != nil {
		t.Fatal(err)
	}
	at := func(day int) evidence.Time {
		return evidence.Second(time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC), evidence.APIClock)
	}
	want := []evidence.Config{{Kind: "ConfigMap", Namespace: "shop", Name: "seen"}, {Kind: "Secret", Namespace: "shop", Name: "key", Created: at(1), Written: at(3), By: "b"}}
	for i := range s.Configs {
		if i == 0 && (len(s.Configs[i].Events) != 1 || s.Configs[i].Events[0].First != at(4)) {
			t.Errorf("%+v", s.Configs[i].Events)
		}
		s.Configs[i].Source, s.Configs[i].Events = evidence.Source{}, nil
	}
	if d := cmp.Diff(want, s.Configs); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if lines := s.Left(); len(lines) != 1 || !strings.Contains(lines[0], "ConfigMap: metadata.name") {
		t.Errorf("%q", lines)
	}
}
