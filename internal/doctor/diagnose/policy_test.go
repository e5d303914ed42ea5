package diagnose

import "testing"

// The pods of a Job should end, also if their restartPolicy is not in the evidence, as in kubectl describe.
func TestAPolicyThatIsNotShown(t *testing.T) {
	for owner, want := range map[string]string{"apiVersion: batch/v1, kind: Job": "job-never-ends", "kind: Job": "job-never-ends", "apiVersion: batch.volcano.sh/v1, kind: Job": "", "apiVersion: apps/v1, kind: ReplicaSet": ""} {
		p := smallPod{meta: "ownerReferences: [{" + owner + ", name: web-1, uid: u, controller: true}], ", status: "phase: Running", appIs: over, side: loop, sideIs: runs}
		r := diagnoseFolder(t, folderOf(t, p.texts()))
		got := ""
		if len(r.Findings) > 0 && r.Findings[0].Code == "job-never-ends" {
			got = "job-never-ends"
		}
		if got != want {
			t.Errorf("%s: %s", owner, r.Sentence)
		}
	}
}
