package agent

import (
	"os"
	"testing"

	"outrider.dev/test/agent/harness"
)

func TestMain(m *testing.M) {
	status := m.Run()
	harness.Clean()
	os.Exit(status)
}
