package main

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"outriderd": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", UpdateScripts: os.Getenv("UPDATE") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"refused": refused}})
}

// refused implements the script command "refused ARGUMENTS": outriderd must exit with the status 2.
func refused(ts *testscript.TestScript, _ bool, args []string) {
	var exit *exec.ExitError
	if err := ts.Exec("outriderd", args...); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		ts.Fatalf("outriderd ends with %v, want status 2", err)
	}
}
