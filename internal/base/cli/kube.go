package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// A KubeVersion is the minor version in a flag's value such as 1.34.
type KubeVersion int

func (k *KubeVersion) String() string { return fmt.Sprintf("1.%d", int(*k)) }

// Type names the type in a usage text.
func (k *KubeVersion) Type() string { return "version" }

// Set parses 1.34, v1.34.4 or 1.34.4+k3s1, and also 1.34+ or 1.34-gke.1, as managed clusters report.
func (k *KubeVersion) Set(s string) error {
	parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
	if len(parts) >= 2 && parts[0] == "1" {
		minor, _, _ := strings.Cut(strings.Replace(parts[1], "-", "+", 1), "+")
		if n, err := strconv.Atoi(minor); err == nil && n >= 18 && n < 100 {
			*k = KubeVersion(n)
			return nil
		}
	}
	return fmt.Errorf("--kube=%q: write it like 1.34; 1.18 is the oldest", s)
}
