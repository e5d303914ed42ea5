package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	becomeContainer()
	testscript.Main(m, map[string]func(){"outrider": main, "kubectl-outrider": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			incidents, err := filepath.Abs("../../testdata/incidents")
			e.Setenv("INCIDENTS", incidents)
			return err
		},
		Condition: func(cond string) (bool, error) { return cond == "root" && os.Geteuid() == 0, nil },
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"registry": startRegistry(t)}})
}
