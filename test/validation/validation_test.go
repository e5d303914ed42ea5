package validation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	security "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	reason "outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/test/corpus"
	"outrider.dev/test/tier"
)

// A subject is an object that contains a pod, to be injected in the tests.
type subject struct {
	podfile.Object
	tree map[string]any // the whole object
	was  *verdict       // verdict on the pod in the file; annotations do not change it; nil: not known
}

func (s subject) String() string { return s.File + ": " + s.Object.String() }

// subjectsOf returns the objects with pods in a file.
func subjectsOf(t testing.TB, file string, text []byte) (out []subject) {
	t.Helper()
	objects, _, err := podfile.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	for s := range manifest.Split(text) {
		if s.Empty() {
			continue
		}
		number++
		for _, o := range objects {
			if o.Document != number {
				continue
			}
			of := subject{Object: o}
			if err := yaml.Unmarshal(s.Body, &of.tree); err != nil {
				t.Fatal(err)
			}
			if meta, ok := of.tree["metadata"].(map[string]any); ok {
				meta["namespace"] = namespace
			}
			if of.Template == "" {
				of.Pod.Namespace = namespace
			}
			out = append(out, of)
		}
	}
	return out
}

// with returns the object with another pod, as JSON.
func (s subject) with(t testing.TB, pod *corev1.Pod) []byte {
	t.Helper()
	whole := maps.Clone(s.tree)
	at := whole
	for step := range strings.SplitSeq(s.Template, ".") {
		if step != "" {
			below := maps.Clone(at[step].(map[string]any))
			at[step], at = below, below
		}
	}
	at["metadata"], at["spec"] = pod.ObjectMeta, pod.Spec
	raw, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// judged returns the API server's verdict on the object with a pod.
func (s subject) judged(t testing.TB, pod *corev1.Pod) verdict {
	t.Helper()
	v, err := judge(s.with(t, pod))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

// before returns the API server's verdict on a pod that the author has written with a setting, before injection.
func (s subject) before(t testing.TB, way setting, pod *corev1.Pod) verdict {
	if s.was != nil && way.change == nil {
		return *s.was
	}
	return s.judged(t, pod)
}

// counts holds the numbers of pods by result, for one setting or for all.
type counts struct {
	pods, injected int
	refused        map[reason.Code]int
	levels         map[[2]security.Level]int // by the Pod Security levels before and after injection
}

func newCounts() counts {
	return counts{refused: map[reason.Code]int{}, levels: map[[2]security.Level]int{}}
}

func (c *counts) add(more counts) {
	c.pods += more.pods
	c.injected += more.injected
	for code, n := range more.refused { // any order: numbers are added
		c.refused[code] += n
	}
	for l, n := range more.levels { // any order: numbers are added
		c.levels[l] += n
	}
}

func (c counts) String() string {
	out := fmt.Sprintf("%d pods, %d injected", c.pods, c.injected)
	for _, code := range slices.Sorted(maps.Keys(c.refused)) {
		out += fmt.Sprintf(", %d refused (%s)", c.refused[code], code)
	}
	all := []security.Level{security.LevelRestricted, security.LevelBaseline, security.LevelPrivileged}
	for _, before := range all {
		for _, after := range all {
			if n := c.levels[[2]security.Level{before, after}]; n > 0 {
				out += fmt.Sprintf("; %d %s", n, before)
				if before != after {
					out += fmt.Sprintf(", now %s", after)
				}
			}
		}
	}
	return out
}

// injects injects a pod with a setting, and counts the result. It fails the test if the API server refuses the
// original or the injected pod, or warns about the injected pod only.
func (c *counts) injects(t *testing.T, s setting, o inject.Options, of subject) {
	t.Helper()
	pod := s.written(&of.Pod)
	was := of.before(t, s, pod)
	c.pods++
	for _, e := range was.errors {
		t.Errorf("%s: refused by the API server as written: %s", of, e)
	}
	if s.commands {
		o.Commands = commandsOf(pod)
	}
	if of.Kind != "Pod" {
		o.Workload = inject.Workload{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Name}
	}
	r, err := inject.Pod(pod, s.namespace(), o)
	var refusal *reason.Refusal
	switch {
	case errors.As(err, &refusal):
		c.refused[refusal.Code]++
		if s.all {
			t.Errorf("%s: refused by injection: %v", of, err)
		}
		return
	case err != nil:
		t.Fatalf("%s: %v", of, err)
	case !r.Injected:
		c.refused["not: "+r.Reason.Code]++
		return
	}
	c.injected++
	is := of.judged(t, r.Pod)
	for _, e := range is.errors {
		t.Errorf("%s: refused by the API server once it is injected: %s", of, e)
	}
	for _, w := range is.warnings {
		if !slices.Contains(was.warnings, w) && len(r.Clashes) == 0 {
			t.Errorf("%s: a warning of the API server that was not there: %s", of, w)
		}
	}
	c.levels[[2]security.Level{was.level, is.level}]++
	if s.keeps && is.level != was.level {
		t.Errorf("%s: Pod Security: %s, and it was %s", of, is.level, was.level)
	}
	for _, w := range r.Warnings {
		if strings.Contains(w, "is not known") {
			t.Errorf("%s: %s", of, w) // the setting of the test has a wrong name
		}
	}
	if s.enforce != "" && strict(was.level) >= strict(s.enforce) && strict(is.level) < strict(s.enforce) {
		t.Errorf("%s: Pod Security refuses it once it is injected: %s, where %s is enforced, and it was %s", of, is.level, s.enforce, was.level)
	}
	twice, err := inject.Pod(r.Pod, s.namespace(), o)
	if err != nil {
		t.Errorf("%s: injected again: %v", of, err)
		return
	}
	if equality.Semantic.DeepEqual(r.Pod, twice.Pod) {
		return
	}
	for _, e := range of.judged(t, twice.Pod).errors {
		t.Errorf("%s: refused by the API server once it is injected twice: %s", of, e)
	}
}

// strict returns a number that is larger for stricter levels.
func strict(l security.Level) int {
	return slices.Index([]security.Level{security.LevelPrivileged, security.LevelBaseline, security.LevelRestricted}, l)
}

// commandsOf returns made-up commands for the images of a pod.
func commandsOf(pod *corev1.Pod) map[string]imagecmd.Command {
	out := map[string]imagecmd.Command{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		out[c.Image] = imagecmd.Command{Entrypoint: []string{"/entrypoint"}, Cmd: []string{"serve"}, Digest: "sha256:" + strings.Repeat("ab", 32)}
	}
	return out
}

func sane(t testing.TB) (out []subject) {
	t.Helper()
	files, err := corpus.Sane()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for _, of := range subjectsOf(t, f.Name, f.Data) {
			of.was = new(of.judged(t, &of.Pod))
			out = append(out, of)
		}
	}
	return out
}

// The API server accepts each sane pod as its author has written it, and injected with each setting, and injection
// adds no warning. An ordinary run tries an eighth of the pairs of pod and setting.
func TestSanePods(t *testing.T) {
	subjects, all := sane(t), newCounts()
	var mu sync.Mutex
	t.Run("settings", func(t *testing.T) {
		for _, s := range cases {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				o, c := s.options(t), newCounts()
				for _, of := range subjects {
					if tier.Sample(s.name+" "+of.String(), 8) {
						c.injects(t, s, o, of)
					}
				}
				t.Log(c)
				mu.Lock()
				defer mu.Unlock()
				all.add(c)
			})
		}
	})
	t.Logf("%d sane pods, %d settings, %d of %d pairs: %v", len(subjects), len(cases), all.pods, len(subjects)*len(cases), all)
}
