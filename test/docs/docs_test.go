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

// pages lists the pages from which users copy commands. Commands of an example run in a copy of its folder, those of a
// skill in a folder with an incident and a manifest.
var pages = []string{"../../README.md", "../../docs/*.md", "../../examples/*/README.md", "../../skills/*/SKILL.md"}

// block matches a script on a page: either an sh block, which readers copy, or a check,
// which they do not see. Text that only the test needs is in HTML comments, so that the
// copied script does not contain it:
//
//	<!-- exit 1: the reason -->   before an sh block: the exit status of its last command
//	<!-- check                    begins a check, which ends with the line -->
var block = regexp.MustCompile("(?ms)^(?:<!-- exit (\\d+)[^\n]*-->\n)?```sh\n(.*?)^```$|^<!-- check\n(.*?)^-->$")

// built builds Outrider's commands into a folder, and returns its path. TestMain removes the folder.
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

// Every sh block of the pages succeeds. The blocks of a page run in order, in a network namespace like that of a
// pod. Commands that cannot run in this test are in console blocks.
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
		if strings.HasPrefix(page, "skills/") {
			folder = skillFolder(t)
		}
		t.Run(strings.TrimPrefix(page, "docs/"), func(t *testing.T) { runAll(t, bin, folder, all) })
	})
	if blocks < 5 {
		t.Errorf("%d blocks found: the test looks in the wrong place", blocks)
	}
}

// runAll runs the blocks of a page in the same network namespace and the same folder. This folder is a copy of the
// given one, or empty if none is given.
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
