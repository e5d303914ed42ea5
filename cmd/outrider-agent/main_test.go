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

func TestScripts(t *testing.T) {
	ns.RequireRoot(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			for _, name := range []string{"/usr/sbin", "/sbin"} { // nft, ip
				e.Setenv("PATH", e.Getenv("PATH")+string(os.PathListSeparator)+name)
			}
			return nil
		},
	})
}
