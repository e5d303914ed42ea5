package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"outrider.dev/test/e2e/world"
)

// A probing is a variant whose liveness probe is measured. The probe runs once a second.
type probing struct {
	way
	delay int32 // initial delay of the probe, in seconds
}

var probings = []probing{
	{way: all[0]},
	{way: way{name: "native", namespace: "shop", annotations: map[string]string{"outrider.dev/start": "native"}}},
	{way: way{name: "gate", namespace: "shop", annotations: map[string]string{"outrider.dev/start": "gate"}}},
	{way: way{name: "gate, outrider-agent held", namespace: "shop", annotations: map[string]string{"outrider.dev/start": "gate", "status.sidecar.istio.io/port": "0"}}, delay: 1},
}

// measureProbes prints the processor time that one liveness probe costs, in the pod and in its containerd shim,
// which starts the processes of exec probes. The cost is the difference between a pod with the probe and one
// without it, over the given number of seconds.
func measureProbes(ctx context.Context, w *world.World, seconds int) error {
	var pods []*world.Pod
	for i, p := range probings {
		for _, probed := range []bool{false, true} {
			pod := world.Awesome(p.namespace, fmt.Sprintf("probes-%d-%t", i, probed))
			for key, value := range p.annotations {
				pod.Annotations[key] = value
			}
			app := &pod.Spec.Containers[0]
			app.Command = []string{"/app", "serve", "--config=http://config.centre/", "--call=http://server.shop/", "--every=1h"}
			app.ReadinessProbe = nil
			if probed {
				app.LivenessProbe = world.HTTPProbe("/ready", 8080)
				app.LivenessProbe.InitialDelaySeconds, app.LivenessProbe.TimeoutSeconds = p.delay, 10
			}
			made, err := w.Create(ctx, pod)
			if err != nil {
				return err
			}
			defer made.Remove(context.WithoutCancel(ctx))
			pods = append(pods, made)
		}
	}
	for _, p := range pods {
		if err := p.Until(ctx, "called", func() bool { _, ok := p.Has("app", "called", 1); return ok && p.Ready() }); err != nil {
			return err
		}
	}
	time.Sleep(10 * time.Second) // wait until the start no longer costs processor time
	before, err := used(pods)
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	after, err := used(pods)
	if err != nil {
		return err
	}
	fmt.Printf("\nkubelet %s, %d liveness probes each; milliseconds of processor time a probe\n", w.Version, seconds)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "way\ta probe\tthe pod without it, a second")
	for i, p := range probings {
		without, with := after[2*i]-before[2*i], after[2*i+1]-before[2*i+1]
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\n", p.name, ms(with-without)/float64(seconds), ms(without)/float64(seconds))
		if n := pods[2*i+1].Restarts("app"); n > 0 {
			return fmt.Errorf("%s: %d restarts", p.name, n)
		}
	}
	return t.Flush()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// used returns the processor time that each pod, including its shim, has used so far.
func used(pods []*world.Pod) (out []time.Duration, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	took, parents := map[int]time.Duration{}, map[int]int{}
	for _, file := range files {
		text, _ := os.ReadFile(file) // ignore the error: the process may have ended
		// See proc_pid_stat(5): the fields after the name in parentheses begin with field 3.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if len(fields) < 15 {
			continue
		}
		parents[pid], _ = strconv.Atoi(fields[1])
		for _, ticks := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(ticks)
			took[pid] += time.Duration(n) * 10 * time.Millisecond
		}
	}
	for _, p := range pods {
		shim, sum := parents[p.PID("")], time.Duration(0)
		if shim <= 1 {
			return nil, fmt.Errorf("%s: its shim is not found", p.Name)
		}
		for pid := range took { // any order: a sum
			for at := pid; at > 1; at = parents[at] {
				if at == shim {
					sum += took[pid]
					break
				}
			}
		}
		out = append(out, sum)
	}
	return out, nil
}
