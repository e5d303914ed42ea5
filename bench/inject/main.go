// Command inject measures what injection costs at admission: time, bytes and
// allocations of one pod. No figure makes it fail.
//
//	go run ./bench/inject -n 10
//	go run ./bench/inject -o json
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/internal/pod/inject"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// A testCase is one row.
type testCase struct {
	name  string
	pod   string
	patch bool // make the patch and its JSON too
}

const plain = "metadata: {name: shop, labels: {app: shop}}\nspec: {containers: [{name: app, image: shop, command: [/app], ports: [{containerPort: 8080}], readinessProbe: {httpGet: {port: 8080}}}]}"

var cases = []testCase{
	{"a plain pod, by a gate", plain, false},
	{"the same with its JSON patch", plain, true},
	{"a pod without a command, by a native sidecar", "metadata: {name: shop}\nspec: {containers: [{name: app, image: shop}]}", false},
	{"a pod that is left alone", "metadata: {name: shop}\nspec: {hostNetwork: true, containers: [{name: app, image: shop}]}", false},
	{"five containers and a graph", `
metadata: {name: shop, annotations: {outrider.dev/depends-on: "{a: {b: healthy}, b: {c: started}, c: {d: started}}"}}
spec:
  containers:
  - {name: a, image: i, command: [/a]}
  - {name: b, image: i, command: [/b], readinessProbe: {tcpSocket: {port: 1}}}
  - {name: c, image: i, command: [/c]}
  - {name: d, image: i, command: [/d]}
  - {name: e, image: i, command: [/e]}`, false},
}

// A row is what was measured of a case; times are nanoseconds for one pod.
type row struct {
	Name   string `json:"name"`
	N      int    `json:"n"`
	Min    int64  `json:"min"`
	Median int64  `json:"median"`
	Max    int64  `json:"max"`
	CPU    int64  `json:"cpu"` // processor time of the whole process, so that other load counts less
	Bytes  int64  `json:"bytes"`
	Allocs int64  `json:"allocs"`
}

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("inject", flag.ContinueOnError)
	fs.SetOutput(stderr)
	n := fs.Int("n", 10, "rounds of each case")
	pods := fs.Int("pods", 500, "pods in a round")
	output := fs.String("o", "text", "how to print: text or json")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case fs.NArg() > 0 || *n < 1 || *pods < 1 || *output != "text" && *output != "json":
		fmt.Fprintln(stderr, "bench/inject: error: usage: inject [-n ROUNDS] [-pods N] [-o text|json]; at least one round of one pod")
		return 2
	}
	var rows []row
	for _, c := range cases {
		r, err := measure(c, *n, *pods)
		if err != nil {
			fmt.Fprintf(stderr, "bench/inject: error: %s: %v\n", c.name, err)
			return 1
		}
		rows = append(rows, r)
	}
	if err := write(stdout, *output, rows); err != nil {
		fmt.Fprintf(stderr, "bench/inject: error: %v\n", err)
		return 1
	}
	return 0
}

// measure runs rounds of pods, and takes each round's time for one.
func measure(c testCase, n, pods int) (row, error) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(c.pod), &pod); err != nil {
		return row{}, err
	}
	var failed error
	once := func() {
		r, err := inject.Pod(&pod, inject.Namespace{Name: "shop"}, inject.Options{})
		if err == nil && c.patch {
			var ops []inject.Operation
			if ops, err = r.Patch(); err == nil {
				_, err = json.Marshal(ops)
			}
		}
		failed = errors.Join(failed, err)
	}
	once() // what is made once is not the pod's
	out := row{Name: c.name, N: n}
	var times []int64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	spent := processorTime()
	for range n {
		begin := time.Now()
		for range pods {
			once()
		}
		times = append(times, time.Since(begin).Nanoseconds()/int64(pods))
	}
	spent = processorTime() - spent
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	out.Min, out.Median, out.Max = times[0], times[len(times)/2], times[len(times)-1]
	total := int64(n * pods)
	out.CPU = spent / total
	out.Bytes, out.Allocs = int64(after.TotalAlloc-before.TotalAlloc)/total, int64(after.Mallocs-before.Mallocs)/total
	return out, failed
}

// processorTime is what this process has used, in nanoseconds.
func processorTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func write(w io.Writer, output string, rows []row) error {
	if output == "json" {
		return figures.WriteJSON(w, rows)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "case\trounds\tmin µs\tmedian µs\tmax µs\tcpu µs\tkB/pod\tallocs/pod\t\n")
	for _, r := range rows {
		us := func(n int64) float64 { return float64(n) / 1000 }
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t\n", r.Name, r.N, us(r.Min), us(r.Median), us(r.Max), us(r.CPU), float64(r.Bytes)/1000, r.Allocs)
	}
	return t.Flush()
}
