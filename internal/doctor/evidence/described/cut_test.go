package described

import "testing"

// Of the description of a workload the last lines are enough, if the command above them says which one it is. The number
// of lines is no namespace.
func TestEndOfADescription(t *testing.T) {
	const end = `Conditions:
  Type             Status  Reason
  ----             ------  ------
  ReplicaFailure   True    FailedCreate
Events:
  Type     Reason        Age                  From                   Message
  ----     ------        ----                 ----                   -------
  Warning  FailedCreate  86s (x18 over 12m)   replicaset-controller  Error creating: exceeded quota
`
	for command, kind := range map[string]string{ // in any order: each is reported
		"$ kubectl -n pay describe rs till-7b9b4c8d7c | tail -n 8": "ReplicaSet",
		"$ kubectl describe -n pay deployment/till-7b9b4c8d7c":     "Deployment",
		"$ kubectl -n pay describe svc till-7b9b4c8d7c":            "",
		"$ kubectl -n pay describe rs":                             "",
	} {
		got := Read([]byte(command + "\n" + end))
		if kind == "" {
			if len(got.Objects) > 0 {
				t.Errorf("%s: %+v", command, got.Objects)
			}
			continue
		}
		if len(got.Objects) != 1 || got.Objects[0].Kind != kind || got.Objects[0].Meta.Name != "till-7b9b4c8d7c" || got.Objects[0].Meta.Namespace != "pay" || len(got.Objects[0].Events) != 1 {
			t.Errorf("%s: %+v", command, got)
		}
	}
}
