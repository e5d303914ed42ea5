package podfile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/podfile"
)

// label adds a label, and a container before all others. The change is small, so that the test compares
// whole documents.
func label(o podfile.Object) (*corev1.Pod, error) {
	p := o.Pod.DeepCopy()
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels["new"] = "yes"
	p.Spec.Containers = append([]corev1.Container{{Name: "first", Image: "f", Command: []string{"on"}}}, p.Spec.Containers...)
	return p, nil
}

func TestRewrite(t *testing.T) {
	a, err := txtar.ParseFile("testdata/rewrite.txtar")
	if err != nil || len(a.Files) < 20 {
		t.Fatalf("%v, %d files", err, len(a.Files))
	}
	for i := 0; i < len(a.Files); i += 2 {
		in, want := a.Files[i].Data, a.Files[i+1].Data
		t.Run(a.Files[i].Name, func(t *testing.T) { rewrites(t, in, want) })
		if in[0] != '{' && !bytes.HasPrefix(in, []byte("--- ")) {
			crlf := func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")) }
			t.Run(a.Files[i].Name+", with CRLF", func(t *testing.T) { rewrites(t, crlf(in), crlf(want)) })
		}
	}
}

func rewrites(t *testing.T, in, want []byte) {
	got, changes, err := podfile.Rewrite("f", in, label)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if (len(changes) > 0) == bytes.Equal(in, want) {
		t.Errorf("%d changes", len(changes))
	}
	var v any
	d := yaml.NewDecoder(bytes.NewReader(got))
	for err = d.Decode(&v); err == nil; err = d.Decode(&v) {
	}
	if err != io.EOF {
		t.Errorf("the result cannot be read: %v", err)
	}
}

func TestErrorsNameTheDocument(t *testing.T) {
	for in, want := range map[string]string{
		"kind: ConfigMap\n---\n\nkind: [\n": "f: document 2 (line 3)",
		"a: *b\n":                           "unknown anchor",
		"kind: ConfigMap\na: &a [*a]\n":     "f: document 1 (line 1): anchor 'a' value contains itself",
		"kind: ConfigMap\na: &a {<<: *a}\n": "f: document 1 (line 1): anchor 'a' value contains itself",
		"kind: A\n---\nkind: Pod\nmetadata: &m\n  name: a\n  labels: *m\nspec: {containers: [{name: a}]}\n": "f: document 2 (line 3): anchor 'm' value contains itself",
		manyAliases(): "f: document 1 (line 1): more than 68692 values, each value as often as an alias (*NAME) repeats it",
		"{\"a\": 1\n": "f: document 1 (line 1)",
	} {
		_, _, err := podfile.Rewrite("f", []byte(in), label)
		var input *podfile.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
	stop := errors.New("stop")
	if _, _, err := podfile.Rewrite("f", []byte("kind: Pod\nspec: {containers: [{name: a}]}"), func(podfile.Object) (*corev1.Pod, error) { return nil, stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the caller: %v", err)
	}
}

// manyAliases returns a small file that would become very large if its aliases were expanded.
func manyAliases() string {
	text := "kind: ConfigMap\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		alias := fmt.Sprintf("*a%d", i)
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(alias+", ", 10), ", "))
	}
	return text
}

// A comment on a word of a command remains on that word, when a gate is added and when it is removed again.
func TestCommentsOfCommandsStay(t *testing.T) {
	const text = `kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: app
    image: a
    command:
    - /app # the program
    args:
    # how much it says
    - -v
    - "3" # and that is much
`
	rewritten := func(text string, options inject.Options) string {
		t.Helper()
		out, _, err := podfile.Rewrite("f", []byte(text), func(o podfile.Object) (*corev1.Pod, error) {
			r, err := inject.Pod(&o.Pod, inject.Namespace{Name: "x"}, options)
			return r.Pod, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	injected := rewritten(text, inject.Options{})
	if !strings.Contains(injected, "    - --\n    - /app # the program\n    # how much it says\n    - -v\n    - \"3\" # and that is much\n") {
		t.Errorf("a comment is lost:\n%s", injected)
	}
	off := strings.Replace(injected, "  annotations:\n", "  annotations:\n    outrider.dev/start: \"off\"\n    outrider.dev/capture: none\n    outrider.dev/proxy: none\n", 1)
	if got := rewritten(off, inject.Options{}); !strings.Contains(got, "    - /app # the program\n    args:\n    # how much it says\n    - -v\n    - \"3\" # and that is much\n") || strings.Contains(got, "gate") {
		t.Errorf("taken out, a comment is lost:\n%s", got)
	}
}

// A file in which no pod changes keeps its exact bytes. If its pods are injected, the resulting file contains
// exactly the injected pods.
func FuzzRewrite(f *testing.F) {
	f.Add("kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: app, image: a, command: [/app]}]}\n")
	f.Add("kind: Deployment\nspec:\n  template:\n    <<: {metadata: {labels: {a: b}}}\n    spec: {containers: [{name: a, command: [b]}]}\n")
	f.Add("kind: ConfigMap\na: &a [*a]\n")
	f.Add("\xfe\xff") // the mark of UTF-16, and nothing after it
	f.Add("kind: Pod\nmetadata: &m {name: a, labels: *m}\nspec: {containers: [{name: a, command: [b]}]}\n")
	f.Add("kind: PodList\nitems:\n- spec:\n    containers:\n    - name: a\n      command:\n      - b # c\n")
	f.Add("# c\n---\nkind: List\nitems:\n- &x {kind: Pod, spec: {containers: [{name: a, command: [b]}]}}\n- *x\n---\n{\"kind\":\"Job\"}")
	f.Add("kind: Deployment\nspec:\n  template:\n    <<: {metadata: {labels: {a: b}}}\n    spec:\n      containers:\n      - name: a\n        command: >\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, _, err := podfile.Rewrite("f", []byte(text), func(podfile.Object) (*corev1.Pod, error) { return nil, nil })
		if err != nil {
			return
		}
		if string(got) != text {
			t.Fatalf("nothing was changed, and %q became %q", text, got)
		}
		var wanted []*corev1.Pod
		got, _, err = podfile.Rewrite("f", []byte(text), func(o podfile.Object) (*corev1.Pod, error) {
			if len(o.Pod.Spec.Containers)+len(o.Pod.Spec.InitContainers) > 6 {
				return nil, nil
			}
			r, err := inject.Pod(&o.Pod, inject.Namespace{Name: "x"}, inject.Options{})
			if err != nil || !r.Injected {
				return nil, nil
			}
			wanted = append(wanted, r.Pod)
			return r.Pod, nil
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		var found []*corev1.Pod
		_, _, err = podfile.Rewrite("f", got, func(o podfile.Object) (*corev1.Pod, error) {
			if _, ours := o.Pod.Annotations["outrider.dev/status"]; ours {
				found = append(found, o.Pod.DeepCopy())
			}
			return nil, nil
		})
		if err != nil {
			t.Fatalf("what is printed cannot be read: %v\nin:\n%s\nout:\n%s", err, text, got)
		}
		want, _ := json.Marshal(wanted)
		have, _ := json.Marshal(found)
		if !bytes.Equal(want, have) && len(wanted) == len(found) {
			t.Fatalf("printed otherwise than injected:\n%s\nwant\n%s\nin:\n%s", have, want, text)
		}
		if len(found) < len(wanted) {
			t.Fatalf("%d pods were injected, %d are printed\nin:\n%s\nout:\n%s", len(wanted), len(found), text, got)
		}
	})
}
