package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"outrider.dev/test/ns"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"outrider-agent": main, "istio-iptables": main, "pilot-agent": main})
}

// For each command name, the function commands returns that command alone. It is the same command as in the
// list of all commands.
func TestCommands(t *testing.T) {
	all := commands(&terminationLog{}, nil)
	if len(all) < 11 {
		t.Fatalf("%d commands", len(all))
	}
	for _, want := range all {
		for _, name := range append([]string{want.Name()}, want.Aliases...) {
			if got := commands(&terminationLog{}, []string{name}); len(got) != 1 || got[0].Use != want.Use {
				t.Errorf("commands(%q): %d, want %q alone", name, len(got), want.Use)
			}
		}
	}
}

func TestScripts(t *testing.T) {
	ns.RequireRoot(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			for _, name := range []string{"/usr/sbin", "/sbin"} { // directories of nft and ip
				e.Setenv("PATH", e.Getenv("PATH")+string(os.PathListSeparator)+name)
			}
			return nil
		},
	})
}
