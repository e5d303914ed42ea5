package podspec

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestEveryMutantOfExclusionIsNoticed(t *testing.T) {
	mutants.Run(t, "TestExcluded", map[string]mutants.Mutant{
		"hostNetwork is injected":             {File: "excluded.go", From: `pod.Spec.HostNetwork`, To: `false`},
		"Windows by os is injected":           {File: "excluded.go", From: `pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows || pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows"`, To: `pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows"`},
		"Windows by nodeSelector is injected": {File: "excluded.go", From: `pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows"`, To: `false`},
		"Linux by os is not injected":         {File: "excluded.go", From: `pod.Spec.OS.Name == corev1.Windows`, To: `true`},
		"Istio's label goes before ours":      {File: "excluded.go", From: `[]string{contract.OwnInjectLabel, contract.InjectLabel}`, To: `[]string{contract.InjectLabel, contract.OwnInjectLabel}`},
		"a pod that declines is not excluded": {File: "excluded.go", From: `value == "false"`, To: `false`},
		"edges by hand are forgotten":         {File: "choose.go", From: `c.pod.Excluded != "" && e.By != ""`, To: `false`},
	})
}
