package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/evidence/gather"
)

// Beside a line of kubectl get pods, the only log is the application's, although nothing names the container, which is shown
// as CONTAINER. One of another program, of another pod, or one of two is not.
func TestUnnamedLogOfALine(t *testing.T) {
	const (
		head  = "NAME                    READY   STATUS             RESTARTS      AGE\n"
		crash = head + "till-7f5c9d8b4c-2kq8n   0/1     CrashLoopBackOff   5 (9s ago)    9m\n"
		well  = head + "till-7f5c9d8b4c-2kq8n   2/2     Running            1 (9m ago)    9m\n"
		once  = head + "till-7f5c9d8b4c-2kq8n   1/1     Running            1 (9m ago)    9m\n"
		two   = crash + "till-7f5c9d8b4c-x7k2p   0/1     CrashLoopBackOff   5 (9s ago)    9m\n"
		call  = "Error: connect ECONNREFUSED 10.96.14.7:6379\n"
	)
	for name, c := range map[string]struct { // in any order: subtests
		files map[string]string
		says  string
	}{
		"a log after a command": {map[string]string{"t.txt": "$ kubectl get pods\n" + crash + "$ kubectl logs till-7f5c9d8b4c-2kq8n\npanic: no licence for this host\n"}, "CONTAINER ended by itself: panic: no licence for this host"},
		"a file of a word":      {map[string]string{"pods.txt": crash, "log-snippet.txt": "panic: no licence for this host\n"}, "CONTAINER ended by itself: panic: no licence for this host"},
		"two logs":              {map[string]string{"pods.txt": crash, "log.txt": "panic: no licence for this host\n", "snippet.txt": "panic: no disk\n"}, "ends again and again"},
		"what it depends on":    {map[string]string{"t.md": "```\n" + crash + "```\n\nlog of the database server:\n\n```\npanic: no licence for this host\n```\n"}, "a log that names no container says: panic"},
		"a well-known program of another name": {map[string]string{"pods.txt": crash, "log.txt": "1:M 07 Nov 2023 14:01:41.902 # Bad file format reading the append only file\n"},
			"ends again and again"},
		"works since, with a container that is not known": {map[string]string{"pods.txt": well, "log-snippet.txt": call},
			"CONTAINER was refused at 10.96.14.7:6379, and the pod works since its restart: either that was not available, or a proxy in the pod's other container was not ready yet"},
		"works since, and has no other":     {map[string]string{"pods.txt": once, "log-snippet.txt": call}, "CONTAINER was refused at 10.96.14.7:6379"},
		"a pod by the end of its name":      {map[string]string{"t.md": "```\n" + two + "```\n\nlog of x7k2p, container till:\n\n```\npanic: no licence for this host\n```\n"}, "till ended by itself: panic: no licence for this host"},
		"a pod by two parts":                {map[string]string{"t.md": "```\n" + head + "rollup-exec-1   0/1     Error   0    9m\nrollup-exec-3   0/1     Error   0    9m\n```\n\nlog of exec-3, container till:\n\n```\npanic: no licence for this host\n```\n"}, "till ended by itself: panic: no licence for this host"},
		"a call that may have been refused": {map[string]string{"pods.txt": strings.Replace(crash, "CrashLoopBackOff   5 (9s ago) ", "Error              0          ", 1), "till.log": "2026/03/02 10:00:07 fatal: dial tcp 10.96.14.7:6379: connect: connection refused\n"}, "till was refused at 10.96.14.7:6379"},
	} {
		t.Run(name, func(t *testing.T) {
			said := saidOf(t, c.files)
			if !strings.Contains(said, c.says) {
				t.Errorf("it says %s\nwant %s", said, c.says)
			}
			if name == "works since, and has no other" && strings.Contains(said, "other container") {
				t.Errorf("it has no other container: %s", said)
			}
		})
	}
}

// saidOf returns the sentences of the diagnoses of all pods in some files, a line each.
func saidOf(t *testing.T, files map[string]string) string {
	t.Helper()
	set, err := gather.Read(t.Context(), gather.Options{}, folderOf(t, files))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range set.Pods {
		r, err := Diagnose(t.Context(), p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r.Sentence)
	}
	return strings.Join(out, "\n")
}
