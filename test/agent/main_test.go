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
	flag.Set("test.parallel", "4") // the tests mostly wait; a value on the command line overrides this
	status := m.Run()
	harness.Clean()
	os.Exit(status)
}
