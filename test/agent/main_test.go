package agent

import (
	"flag"
	"os"
	"testing"

	"outrider.dev/internal/lab/localpod/containerinit"
	"outrider.dev/test/agent/harness"
)

func TestMain(m *testing.M) {
	containerinit.Become()
	flag.Set("test.parallel", "4") // they wait most of their time; a value of the command line comes after it
	status := m.Run()
	harness.Clean()
	os.Exit(status)
}
