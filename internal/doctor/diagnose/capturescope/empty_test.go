package capturescope

import (
	"testing"

	"outrider.dev/internal/core/capture"
)

// kubectl describe shows an empty value as an empty line, which some texts leave out. A setting that is not understood is
// named with its value.
func TestEmptyValues(t *testing.T) {
	for name, c := range map[string]struct {
		words []string
		vague string
	}{ // in any order: each is a command line
		"an empty value":             {[]string{"-x", "", "-b", "*"}, ""},
		"an empty line":              {[]string{"-x\n", "-b", "*"}, ""},
		"left out":                   {[]string{"-x", "-b", "*"}, ""},
		"left out at the end":        {[]string{"-b", "*", "-x"}, ""},
		"a value that is no range":   {[]string{"-x", "shop", "-b", "*"}, "-x shop"},
		"a flag that is not known":   {[]string{"-b", "*", "--route-all"}, "--route-all"},
		"one with a value":           {[]string{"--route-all", "eth1", "-b", "*"}, "--route-all eth1"},
		"one with a value, joined":   {[]string{"--route-all=eth1"}, "--route-all=eth1"},
		"a port that is no number":   {[]string{"-p", "http"}, "-p http"},
		"a path that does not count": {[]string{"--firewall-save-bin-path", "iptables-nft-save"}, ""},
	} {
		in := capture.Defaults()
		if got := fromArguments(c.words, setter(&in)); got != c.vague {
			t.Errorf("%s: %q, want %q", name, got, c.vague)
		}
	}
}
