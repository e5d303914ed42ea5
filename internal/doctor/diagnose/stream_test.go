package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// Of a pod of which only a line and a stream of logs are known, the stream says that its proxy did not listen at a call:
// the proxy's lines begin after it, or before it and say later that it is ready. A proxy that may have run before is no
// evidence.
func TestStreamShowsThatAProxyWasLate(t *testing.T) {
	const (
		head   = "NAME    READY   STATUS    RESTARTS   AGE\n"
		once   = head + "till-0  2/2     Running   1          11m\n"
		never  = head + "till-0  2/2     Running   0          11m\n"
		call   = "till-0 till 2026-03-02T10:00:08.126Z FATAL dial tcp 10.0.3.20:9092: connect: connection refused\n"
		again  = "till-0 till 2026-03-02T10:00:11.500Z till is open\n"
		begins = "till-0 istio-proxy 2026-03-02T10:00:08.600Z 2026-03-02T10:00:08.599Z\tinfo\tFLAG: --concurrency=\"2\"\n"
		ready  = "till-0 istio-proxy 2026-03-02T10:00:09.600Z 2026-03-02T10:00:09.599Z\tinfo\tEnvoy proxy is ready\n"
		early  = "till-0 istio-proxy 2026-03-02T10:00:07.600Z 2026-03-02T10:00:07.599Z\tinfo\tFLAG: --concurrency=\"2\"\n"
		kuma   = "till-0 kuma-sidecar 2026-03-02T10:00:08.600Z 2026-03-02T10:00:08.599Z\tINFO\tkuma-dp.run.dns-server\tstarting DNS Server (coredns)\n"
		name   = "till-0 till 2026-03-02T10:00:08.126Z FATAL getaddrinfo db.pay failed: Temporary failure in name resolution\n"
	)
	for title, c := range map[string]struct { // in any order: subtests
		row, stream string
		confidence  result.Confidence
	}{
		"its lines begin after the call":                  {once, call + begins + ready + again, result.Likely},
		"its lines begin before the call":                 {once, early + call + ready + again, result.Likely},
		"no restarts":                                     {never, begins + ready + call + again, result.Likely},
		"the call is the last line of the application":    {once, call + begins + ready, result.Possible},
		"its lines begin long before it is ready":         {once, strings.Replace(early, "10:00:07", "09:00:07", 2) + call + ready + again, result.Possible},
		"a name, and the proxy answers queries":           {once, name + kuma + again, result.Likely},
		"a name, and the pod does not work":               {strings.Replace(once, "2/2     Running ", "1/2     CrashLoopBackOff ", 1), name + kuma + again, ""},
		"a name, and nothing says that the proxy answers": {once, name + begins + ready + again, ""},
	} {
		t.Run(title, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pods.txt": c.row, "stern.txt": "+ till-0 › till\n" + c.stream})
			got := result.Confidence("")
			for _, f := range r.Findings {
				if f.Code == "startup-race" {
					got = f.Confidence
				}
			}
			if got != c.confidence {
				t.Errorf("the race is %q, want %q: %s", got, c.confidence, r.Sentence)
			}
		})
	}
}

// A log that may be of any failed run of a container that has done its work since is of the time of those runs. A run
// without an end in the evidence ended when the next one started.
func TestCallOfOneOfTheFailedRuns(t *testing.T) {
	const pod = `kind: Pod
metadata: {name: till-0, namespace: pay, annotations: {kuma.io/builtindns: enabled}}
spec: {restartPolicy: OnFailure, containers: [{name: till}, {name: kuma-sidecar}]}
status:
  phase: Succeeded
  startTime: "2026-03-02T10:00:00Z"
  containerStatuses:
  - {name: till, restartCount: 1, state: {terminated: {exitCode: 0, startedAt: "2026-03-02T10:00:19Z", finishedAt: "2026-03-02T10:00:30Z"}}, lastState: {terminated: {exitCode: 3, startedAt: "2026-03-02T10:00:04Z", finishedAt: "2026-03-02T10:00:05Z"}}}
  - {name: kuma-sidecar, restartCount: 0, state: {terminated: {exitCode: 0, startedAt: "2026-03-02T10:00:03Z", finishedAt: "2026-03-02T10:00:31Z"}}}
`
	for at, want := range map[string]string{"10:00:08": "found startup-race", "10:00:04": "found name-not-resolved"} { // in any order: each is reported
		r := diagnoseFiles(t, map[string]string{
			"pod.yaml": pod, "till-first-try.txt": "FATAL getaddrinfo db.pay failed: Temporary failure in name resolution\n",
			"kuma-sidecar.log": "[2026-03-02 " + at + ".500][1][info][main] all dependencies initialized. starting workers\n",
		})
		if key(r) != want {
			t.Errorf("a proxy that is ready at %s: %s, want %s: %s", at, key(r), want, r.Sentence)
		}
	}
}

// Of a pod of which only logs are known, the proxy's log says that it left before the application was done.
func TestStreamShowsThatAProxyLeft(t *testing.T) {
	const (
		told  = "till-0 istio-proxy 2026-03-02T10:00:28.114220Z\tinfo\tAgent draining Proxy for termination\n"
		left  = "till-0 istio-proxy 2026-03-02T10:00:38.609975Z\tinfo\tAgent has successfully terminated\n"
		late  = "till-0 till 2026-03-02T10:00:38.640Z ERROR dial tcp 10.0.3.20:9092: connect: connection refused\n"
		early = "till-0 till 2026-03-02T10:00:30.640Z ERROR dial tcp 10.0.3.20:9092: connect: connection refused\n"
	)
	for stream, want := range map[string]string{ // in any order: each is reported
		told + left + late:  "shutdown-race",
		told + early + left: "",
		left + late:         "", // it may have ended by itself
	} {
		r := diagnoseFiles(t, map[string]string{"stern.txt": "+ till-0 › till\n+ till-0 › istio-proxy\n" + stream + "till-0 till 2026-03-02T10:00:41.207Z till is closed\n"})
		got := ""
		if len(r.Findings) > 0 && r.Findings[0].Code == "shutdown-race" {
			got = "shutdown-race"
		}
		if got != want {
			t.Errorf("%s: %q, want %q: %s", stream, got, want, r.Sentence)
		}
	}
}
