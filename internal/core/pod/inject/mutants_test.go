package inject

import (
	"testing"

	"outrider.dev/test/mutants"
)

func TestEveryMutantOfTheDecisionIsNoticed(t *testing.T) {
	mutants.Run(t, "TestWhoIsInjected|TestOwnLabels|TestOtherMeshes|TestNamesDefault", map[string]mutants.Mutant{
		"our namespace label is not the default":      {File: "decide.go", From: `istios || own`, To: `istios`},
		"Istio's namespace label is not the default":  {File: "decide.go", From: `istios || own`, To: `own`},
		"Istio's labels always count":                 {File: "decide.go", From: `!o.OwnLabels`, To: `true`},
		"Istio's labels never count":                  {File: "decide.go", From: `!o.OwnLabels`, To: `false`},
		"another injector is never named":             {File: "decide.go", From: `reason.Code == verdict.NotRequested`, To: `false`},
		"another injector is named for any no":        {File: "decide.go", From: `reason.Code == verdict.NotRequested`, To: `reason.Code != verdict.Injected`},
		"the other injector has our labels alone":     {File: "decide.go", From: `o.OwnLabels = false`, To: ``, Survives: "decideByLabels reads OwnLabels for a sentence alone, which is not used here"},
		"the other injector takes every pod":          {File: "decide.go", From: `istios.Code == verdict.Injected`, To: `true`},
		"Istio's pod label stays":                     {File: "decide.go", From: `out.Labels = without(pod.Labels, contract.InjectLabel, contract.RevisionLabel)`, To: `out.Labels = without(pod.Labels, contract.RevisionLabel)`},
		"Istio's pod revision stays":                  {File: "decide.go", From: `out.Labels = without(pod.Labels, contract.InjectLabel, contract.RevisionLabel)`, To: `out.Labels = without(pod.Labels, contract.InjectLabel)`},
		"Istio's annotation stays":                    {File: "decide.go", From: `out.Annotations = without(pod.Annotations, contract.InjectLabel)`, To: ``},
		"Istio's namespace label stays":               {File: "decide.go", From: `ns.Labels = without(ns.Labels, contract.NamespaceLabel, contract.RevisionLabel)`, To: `ns.Labels = without(ns.Labels, contract.RevisionLabel)`},
		"Istio's namespace revision stays":            {File: "decide.go", From: `ns.Labels = without(ns.Labels, contract.NamespaceLabel, contract.RevisionLabel)`, To: `ns.Labels = without(ns.Labels, contract.NamespaceLabel)`},
		"labels of the pod are removed in place":      {File: "decide.go", From: `m = maps.Clone(m)`, To: ``},
		"the rules before the labels are skipped":     {File: "decide.go", From: `decided`, In: `o); decided {`, To: `false`},
		"a label false is ignored":                    {File: "decide.go", From: `return verdict.Because(verdict.PodOptsOut, "%s is \"false\"", where), nil`, To: ``},
		"a label true is ignored":                     {File: "decide.go", From: `return verdict.Because(verdict.Injected, "%s is \"true\"", where), nil`, To: ``},
		"an invalid label gets no warning":            {File: "decide.go", From: `warnings = append(warnings, where+" is \""+value+"\", which is neither \"true\" nor \"false\": it is as if it was not there")`, To: ``},
		"kube-system is injected":                     {File: "decide.go", From: `slices.Contains(contract.IgnoredNamespaces, ns.Name)`, To: `false`},
		"unknown labels of a namespace are none":      {File: "decide.go", From: `ns.Labels == nil`, To: `false`},
		"labels of a namespace are never known":       {File: "decide.go", From: `ns.Labels == nil`, To: `true`},
		"a pod's false is left to the rules after":    {File: "decide.go", From: `label == "false"`, To: `false`},
		"our namespace label is ignored":              {File: "decide.go", From: `injection, hasInjection = v, true`, To: ``},
		"a namespace with another value is injected":  {File: "decide.go", From: `hasInjection && injection != "enabled"`, To: `false`},
		"a namespace's label is any revision's":       {File: "decide.go", From: `hasInjection && revision != contract.DefaultRevision`, To: `false`},
		"a namespace's label decides nothing":         {File: "decide.go", From: `hasInjection`, In: `	case hasInjection:`, To: `false`},
		"a namespace's revision is any":               {File: "decide.go", From: `hasRevision && nsRevision != revision`, To: `false`},
		"a namespace's revision decides nothing":      {File: "decide.go", From: `hasRevision`, In: `	case hasRevision:`, To: `false`},
		"a pod's revision is any":                     {File: "decide.go", From: `podHasRevision && podRevision != revision`, To: `false`},
		"a pod's revision requests nothing":           {File: "decide.go", From: `podHasRevision`, In: `	case podHasRevision, label`, To: `false`},
		"a pod's label requests nothing":              {File: "decide.go", From: `label == "true"`, To: `false`},
		"by hand requests nothing":                    {File: "decide.go", From: `o.Manual`, To: `false`},
		"namespaces by default request nothing":       {File: "decide.go", From: `o.Values.Injector.EnableNamespacesByDefault`, To: `false`},
		"every pod requests injection":                {File: "decide.go", From: `return verdict.Because(verdict.NotRequested, "neither the namespace %s has the label %s=enabled nor the pod the label %s=true; an annotation alone does not start injection", ns.Name, ofNamespace, ofPod), true`, To: `return verdict.Reason{}, false`},
		"the sentence names labels that do not count": {File: "decide.go", From: `ofNamespace, ofPod = contract.OwnNamespaceLabel, contract.OwnInjectLabel`, To: ``},
		"our pod label does not start injection": {File: "decide.go", From: `return v`, In: `OwnInjectLabel]; ok {
		return v
	}
	return pod.Labels`, To: ``},
		"neverInjectSelector is ignored":            {File: "decide.go", From: `o.Values.Injector.NeverInjectSelector`, To: `nil`},
		"alwaysInjectSelector is ignored":           {File: "decide.go", From: `o.Values.Injector.AlwaysInjectSelector`, To: `nil`},
		"a disabled policy injects":                 {File: "decide.go", From: `return verdict.Because(verdict.PolicyDisabled, "the policy (global.proxy.autoInject) is \"disabled\", and the pod does not request injection")`, To: `return verdict.Because(verdict.Injected, "")`},
		"an invalid policy injects":                 {File: "decide.go", From: `return verdict.Because(verdict.PolicyDisabled, "the policy (global.proxy.autoInject) is %q, which is neither \"enabled\" nor \"disabled\": nothing is injected", policy)`, To: `return verdict.Because(verdict.Injected, "")`},
		"an empty selector matches":                 {File: "decide.go", From: `!m.Empty()`, To: `true`},
		"every selector matches":                    {File: "decide.go", From: `m.Matches(labels.Set(pod.Labels))`, To: `true`},
		"our annotation does not request a proxy":   {File: "decide.go", From: `pod.Annotations[contract.OwnInjectLabel] == "true"`, To: `false`},
		"our namespace label does not request it":   {File: "decide.go", From: `ns.Labels[contract.OwnNamespaceLabel] == "enabled"`, To: `false`},
		"our pod label does not request it":         {File: "decide.go", From: `requested = v == "true"`, To: ``},
		"any value of our pod label requests it":    {File: "decide.go", From: `v == "true"`, To: `true`},
		"proxy: none is ignored":                    {File: "decide.go", From: `pod.Annotations[contract.Proxy] == "none"`, To: `false`},
		"another mesh's proxy gets a second one":    {File: "decide.go", From: `!requested`, To: `false`},
		"Istio's status is not read":                {File: "decide.go", From: `knownproxy.OfTemplate(pod)`, To: `""`},
		"no other mesh is known":                    {File: "decide.go", From: `knownproxy.OtherMesh(c.Name)`, To: `false`},
		"with parking alone the proxy leaves first": {File: "write.go", From: `s.capture && knownproxy.IsMeshProxy(p.Pod, &c)`, To: `false`, Tests: "TestAnotherMeshsProxyStaysUntilTheEnd"},
		"sockets of a sidecar are no warning":       {File: "write.go", From: `len(ungated) > 0 && len(sidecars) > 0`, To: `false`, Tests: "TestAnotherMeshsProxyStaysUntilTheEnd"},
	})
}
