package calls

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/doctor/evidence/gather"
)

var update = flag.Bool("update", false, "write what is read of each text of testdata/wordings.txt")

// What clients of the usual languages write of a refused call is read as in the file: after the name of each text, the
// failure and the destination. A new wording is a text with its name; go test -run TestWordings -update adds the rest.
func TestWordings(t *testing.T) {
	const file = "testdata/wordings.txt"
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	folder, names, pod := t.TempDir(), []string{}, "kind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n"
	texts := map[string]string{}
	for block := range strings.SplitSeq(strings.TrimPrefix(string(recorded), "-- "), "\n-- ") {
		head, text, _ := strings.Cut(block, "\n")
		name, _, _ := strings.Cut(head, " --")
		name, _, _ = strings.Cut(name, ": ")
		container := fmt.Sprintf("c%03d", len(names))
		names, texts[name] = append(names, name), strings.TrimSuffix(text, "\n")
		pod += fmt.Sprintf("  - name: %s\n", container)
		if err := os.WriteFile(filepath.Join(folder, container+".log"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "pod.yaml"), []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := gather.Read(t.Context(), gather.Options{}, folder)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(t.Context(), set.Pods[0], nil, false)
	if err != nil {
		t.Fatal(err)
	}
	named, out := 0, ""
	for i, name := range names {
		got := []string{}
		for _, y := range read.Calls.By(fmt.Sprintf("c%03d", i)) {
			got = append(got, fmt.Sprintf("%s %s", y.Failure, y.To))
			if y.To.Known() {
				named++
			}
		}
		out += fmt.Sprintf("-- %s: %s --\n%s\n", name, strings.Join(got, "; "), texts[name])
	}
	t.Logf("%d texts, %d calls, %d of them with their destination", len(names), len(read.Calls), named)
	if *update {
		if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(strings.Split(string(recorded), "\n"), strings.Split(out, "\n")); d != "" && !*update {
		t.Errorf("what is read differs from %s (-recorded +got):\n%s", file, d)
	}
}
