package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"outrider.dev/test/ns"
)

// pages lists the pages from which users copy commands. Commands of an example run in a copy of its folder.
var pages = []string{"../../README.md", "../../docs/*.md", "../../examples/*/README.md"}

// A block is a script of a page: either one that readers copy, or a check that they do
// not see. What only the test needs is in HTML comments, so that the copied script
// does not contain it:
//
//	<!-- exit 1: the reason -->   before an sh block: the status of its last command
//	<!-- check                    a script of its own, up to the line -->
var block = regexp.MustCompile("(?ms)^(?:<!-- exit (\\d+)[^\n]*-->\n)?```sh\n(.*?)^```$|^<!-- check\n(.*?)^-->$")

// built returns a folder with the commands, which TestMain removes.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "commands.*")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", dir, "../../cmd/...").CombinedOutput(); err != nil {
		return dir, fmt.Errorf("building the commands: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if dir, _ := built(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

func commands(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

type script struct {
	text   string
	status int
}

// scripts returns the blocks of a page in order.
func scripts(page string) (out []script) {
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		status, _ := strconv.Atoi(m[1]) // an empty text gives 0
		out = append(out, script{m[2] + m[3], status})
	}
	return out
}

// Every sh block of the pages runs, in order, in a namespace like a pod's. A block that must not
// run here is marked as a console block.
func TestCommandsOfThePages(t *testing.T) {
	ns.RequireRoot(t)
	bin := commands(t)
	blocks := 0
	eachPage(t, pages, func(page, text string) {
		all := scripts(text)
		blocks += len(all)
		folder := ""
		if strings.HasPrefix(page, "examples/") {
			folder = filepath.Join("../..", filepath.Dir(page))
		}
		t.Run(strings.TrimPrefix(page, "docs/"), func(t *testing.T) { runAll(t, bin, folder, all) })
	})
	if blocks < 5 {
		t.Errorf("%d blocks found: the test looks in the wrong place", blocks)
	}
}

// runAll runs the blocks of one page in one namespace and one folder: a copy of folder, or an empty
// one if it is "".
func runAll(t *testing.T, bin, folder string, all []script) {
	dir := t.TempDir()
	if folder != "" {
		if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
	}
	ns.Pod(t).Do(func() {
		for _, s := range all {
			cmd := exec.Command("sh", "-euxc", s.text)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":/usr/sbin:/usr/bin:/sbin:/bin")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != s.status {
				t.Errorf("%v; want status %d\n%s", err, s.status, out)
			}
		}
	})
}

func TestWhatAReaderCopiesHasNoNeedsOfTheTest(t *testing.T) {
	harness := regexp.MustCompile(`\bexit 1\b|\$\? (=|-ne|-eq) |\|\| true`)
	eachPage(t, pages, func(page, text string) {
		for _, s := range scripts(text) {
			if m := harness.FindString(s.text); m != "" {
				t.Errorf("%s: a block has %q", page, m)
			}
		}
	})
}
