package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// A KubeVersion is a version of Kubernetes as the value of a flag, such as 1.34. It holds the minor version.
type KubeVersion int

func (k *KubeVersion) String() string { return fmt.Sprintf("1.%d", int(*k)) }

// Type names the type in a usage text.
func (k *KubeVersion) Type() string { return "version" }

// Set parses 1.34, v1.34.4 or 1.34.4+k3s1, and also the forms 1.34+ and 1.34-gke.1 of managed clusters. Versions
// before 1.18 are errors.
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
