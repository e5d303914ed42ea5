package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"outrider.dev/test/ns"
)

// pages are what people copy commands from.
var pages = []string{"../../README.md", "../../docs/*.md"}

var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// Every sh block of the pages runs, in order, in a namespace as a pod has it. What is
// not to be run here stands in a console block.
func TestCommandsOfThePages(t *testing.T) {
	ns.RequireRoot(t)
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/...").CombinedOutput(); err != nil {
		t.Fatalf("building the commands: %v\n%s", err, out)
	}
	blocks := 0
	for _, pattern := range pages {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(files))
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var scripts []string
			for _, m := range block.FindAllStringSubmatch(string(text), -1) {
				scripts = append(scripts, m[1])
			}
			blocks += len(scripts)
			t.Run(filepath.Base(file), func(t *testing.T) { runAll(t, bin, scripts) })
		}
	}
	if blocks < 5 {
		t.Errorf("%d blocks found: the test looks in the wrong place", blocks)
	}
}

// runAll runs the blocks of one page in one namespace.
func runAll(t *testing.T, bin string, scripts []string) {
	dir := t.TempDir()
	ns.Pod(t).Do(func() {
		for _, script := range scripts {
			cmd := exec.Command("sh", "-euxc", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":/usr/sbin:/usr/bin:/sbin:/bin")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
}
