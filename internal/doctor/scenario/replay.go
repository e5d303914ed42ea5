package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/startup"
)

// A Recording is the part of the output of "outrider verify -o json" that is needed to replay its counterexamples.
type Recording struct {
	file string
	pods []recordedPod
}

type recordedPod struct {
	Kind, Name, Kubernetes string
	Document               int
	Plan                   startup.Plan
	Results                []struct {
		Promise  string
		Faults   []string
		Schedule []gates.Move
	}
}

// ParseRecording reads the output of "outrider verify -o json". It fails if there is no counterexample in it.
func ParseRecording(file string, data []byte) (Recording, error) {
	r := Recording{file: file}
	if err := json.Unmarshal(data, &r.pods); err != nil {
		return r, fmt.Errorf("%s: must be what 'outrider verify -o json' prints: %w", file, err)
	}
	for _, p := range r.pods {
		for _, result := range p.Results {
			if len(result.Schedule) > 0 {
				return r, nil
			}
		}
	}
	return r, fmt.Errorf("%s: it has no counterexample, so there is nothing to replay", file)
}

// Replay runs the recorded counterexamples of the pod again in the simulator. It fails if the recording was made with
// another plan of the pod or another version of Kubernetes.
func (s Subject) Replay(r Recording) (out []Simulation, err error) {
	plan, err := json.Marshal(s.Plan)
	if err != nil {
		return nil, err
	}
	for _, p := range r.pods {
		if p.Kind != s.Kind || p.Name != s.Name || p.Document != s.Document {
			continue
		}
		recorded, err := json.Marshal(p.Plan)
		if err != nil {
			return nil, err
		}
		if p.Kubernetes != s.Kubernetes || !bytes.Equal(plan, recorded) {
			return nil, fmt.Errorf("%s: its %s has another plan, or another version of Kubernetes: verify and replay with the same -f, --kube and --injected", r.file, s.Object)
		}
		for _, result := range p.Results {
			if len(result.Schedule) == 0 {
				continue
			}
			o, err := simulate.Replay{Pod: s.pod, Plan: s.Plan, Kubernetes: int(s.on), Schedule: result.Schedule}.Run()
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", r.file, s.Object, err)
			}
			replays := Answer{Promise: result.Promise}
			replays.Counterexample, replays.Faults = o.Timeline, result.Faults
			out = append(out, Simulation{Subject: s, Replays: replays.Verdict(), Outcome: o, Restarts: o.Restarts(), Refused: o.Refused()})
		}
	}
	return out, nil
}
