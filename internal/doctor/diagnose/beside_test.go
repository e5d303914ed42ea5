package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// A ticket shows a table, and a few lines of a description, of a pod whose logs lie beside it. The logs are of the pod
// that restarted, and of its containers, as far as the table counts them.
func TestTicketWithLogs(t *testing.T) {
	const (
		rows     = "$ kubectl -n shop get po\nNAME                    READY   STATUS    RESTARTS      AGE\n"
		well     = "web-6d4b75cb6d-hx9k2    2/2     Running   0             3d\n"
		ill      = "web-7f5c9d8b4c-2kq8n    2/2     Running   1 (20s ago)   25s\n"
		fragment = "\n$ kubectl describe pod/web-7f5c9d8b4c-2kq8n -n shop | grep -A12 ' web:'\n  web:\n    Image:          web:7\n    State:          Running\n      Started:      Mon, 02 Mar 2026 10:00:09 +0000\n" +
			"    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    1\n      Started:      Mon, 02 Mar 2026 10:00:02 +0000\n      Finished:     Mon, 02 Mar 2026 10:00:05 +0000\n    Restart Count:  1\n"
		refused = "boot\nredis.exceptions.ConnectionError: Error 111 connecting to localhost:6390. Connection refused.\n"
		late    = "2026-03-02T10:00:05.400Z shard-router: listening on 127.0.0.1:6390\n"
	)
	files := func(ticket, helper string) map[string]string {
		return map[string]string{"ticket.txt": ticket, "web.previous.log": refused, "shard-router.log": helper}
	}
	for name, c := range map[string]struct {
		files map[string]string
		pods  int
		says  string
	}{
		"a table and a fragment": {files(rows+well+ill+fragment, late), 1, "web called its own pod at localhost:6390, most likely before shard-router listened there"},
		"a table":                {files(rows+well+ill, late), 1, "web called its own pod at localhost:6390, most likely before shard-router listened there"},
		"one line":               {files(rows+ill, late), 1, "most likely before shard-router listened there"},
		"no more containers":     {files(rows+strings.Replace(ill, "2/2", "1/1", 1)+fragment, late), 1, "no other container is there that could listen"},
		"another port":           {files(rows+ill+fragment, strings.Replace(late, "6390", "6391", 1)), 1, "web called its own pod at localhost:6390, where no container listened"},
		"no logs":                {map[string]string{"ticket.txt": rows + well + ill}, 2, "nothing is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			set := readSet(t, c.files)
			if len(set.Pods) != c.pods {
				t.Fatalf("%d pods", len(set.Pods))
			}
			r, err := Diagnose(t.Context(), set.Pods[len(set.Pods)-1], Options{})
			if err != nil || !strings.Contains(r.Sentence, c.says) {
				t.Errorf("%s (%v)", r.Sentence, err)
			}
			if strings.Contains(r.Sentence, "likely") && r.Findings[0].Confidence != result.Likely {
				t.Errorf("%+v", r.Findings[0])
			}
			if r.Pod != "shop/web-7f5c9d8b4c-2kq8n" {
				t.Errorf("%s", r.Pod)
			}
		})
	}
}
