package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts of the command run have their own test, with the condition "root", because most of them need root.
func TestRunScripts(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	agents := ""
	if os.Geteuid() == 0 {
		agents = agentDirectory(t)
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/run", UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			if agents != "" {
				e.Setenv("PATH", agents+string(os.PathListSeparator)+e.Getenv("PATH"))
			}
			return os.WriteFile(filepath.Join(e.WorkDir, "README.md"), readme, 0o600)
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		}})
}

// agentDirectory returns a directory that contains the agent, for PATH.
func agentDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, agentProgram), "outrider.dev/cmd/outrider-agent").CombinedOutput()
	if err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	return dir
}
