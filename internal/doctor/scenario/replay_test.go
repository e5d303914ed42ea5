package scenario

import (
	"encoding/json"
	"testing"
	"time"

	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/verify"
)

const heldPod = `{apiVersion: v1, kind: Pod, metadata: {name: hold}, spec: {containers: [
  {name: istio-proxy, image: docker.io/istio/proxyv2, args: [proxy], lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}},
  {name: shop, image: shop, command: [/shop], livenessProbe: {exec: {command: [t]}}}]}}`

// A replay ends with an outcome or an error, whatever the recording contains.
func FuzzReplay(f *testing.F) {
	objects, _, err := podfile.Parse("pod.yaml", []byte(heldPod))
	if err != nil {
		f.Fatal(err)
	}
	s, err := NewSubject(objects[0], 34)
	if err != nil {
		f.Fatal(err)
	}
	v, err := s.Verify(f.Context(), Promises["both"], verify.Bound{Faults: 2, Time: time.Hour}, func(string, verify.Progress) {})
	if err != nil {
		f.Fatal(err)
	}
	seed, err := json.Marshal([]Verification{v})
	if err != nil {
		f.Fatal(err)
	}
	r, err := ParseRecording("seed.json", seed)
	if err != nil {
		f.Fatal(err)
	}
	if out, err := s.Replay(r); err != nil || len(out) != 2 {
		f.Fatalf("%d replays of two counterexamples, %v", len(out), err)
	}
	for _, a := range v.Results {
		schedule, err := json.Marshal(a.Schedule)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(schedule)
	}
	f.Fuzz(func(t *testing.T, schedule []byte) {
		r := r
		r.pods = []recordedPod{r.pods[0]}
		r.pods[0].Results = r.pods[0].Results[:1:1]
		if json.Unmarshal(schedule, &r.pods[0].Results[0].Schedule) == nil {
			_, _ = s.Replay(r)
		}
		_, _ = ParseRecording("any.json", schedule)
	})
}
