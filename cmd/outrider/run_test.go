package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts of run have a condition of their own: most of them need root.
func TestRunScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/run", UpdateScripts: os.Getenv("UPDATE") != "",
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		}})
}
