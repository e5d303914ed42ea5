package main

import (
	"maps"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	build "outrider.dev/build/commands"
	"outrider.dev/cmd/internal/handoff"
)

// The scripts call the program outrider, as users do, and outrider runs outrider-operate.
func TestScripts(t *testing.T) {
	bin := t.TempDir()
	if err := build.Build(t.Context(), bin, build.CLI, build.Operate); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: "testdata", UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("BIN", bin)
			e.Setenv("SYSTEM", e.Getenv("PATH"))
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			return nil
		}})
}

// outrider lists exactly the commands of this program, with the same descriptions.
func TestListedCommands(t *testing.T) {
	shorts := func(all []*cobra.Command) map[string]string {
		out := map[string]string{}
		for _, c := range all {
			out[c.Name()] = c.Short
		}
		return out
	}
	want := shorts(commands())
	if d := cmp.Diff(want, shorts(handoff.Commands())); d != "" {
		t.Errorf("the commands of this program, and those that outrider lists (-want +got):\n%s", d)
	}
	for name := range maps.Keys(want) { // any order: each is independent
		for _, args := range [][]string{{name}, {"help", name}, {"__complete", name, ""}, {"__completeNoDesc", name, "--"}} {
			if !handoff.Wanted(args) {
				t.Errorf("outrider keeps %q to itself", args)
			}
		}
	}
}
