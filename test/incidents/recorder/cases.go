// Package recorder stages incidents of pods with real processes on a private machine (package localpod):
// the kernel refuses connections by real rules, and the proxy is a real Envoy. It writes the output
// that kubectl would show to a folder.
//
//	cases.go   the incidents, as a table
//	world.go   the machine: control plane, configuration service, DNS
//	stage.go   runs a case as a pod, and watches it
//	object.go  turns the observations into the pod's object, events and logs
package recorder

import (
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"time"

	"outrider.dev/test/awesome"
)

// runtimes maps a runtime to the application's command.
var runtimes = map[string][]string{
	"java": {"/usr/bin/java", "-XX:TieredStopAtLevel=1", "-cp", "/app", "App"}, "node": {"/usr/bin/node", "/app/app.js"},
	"python": {"/usr/bin/python3", "/app/app.py"}, "ruby": {"/usr/bin/ruby", "/app/app.rb"}, "php": {"/usr/bin/php", "-d", "display_errors=stderr", "/app/app.php"},
	"go": {"/app/go-app"}, "perl": {"/usr/bin/perl", "/app/app.pl"}, "curl": {"/bin/sh", "/app/app.sh"},
	"redis": {"/bin/sh", "/app/redis.sh"}, "nginx": {"/bin/sh", "/app/nginx.sh"},
}

// The fragile forms of examples/awesome-app are called awesome-go and so on.
func init() {
	for _, language := range awesome.Languages {
		runtimes["awesome-"+language] = awesome.Command("/app/awesome", language, awesome.Fragile)
		appNames["awesome-"+language] = "awesome-app"
	}
}

// A fault says how a pod is broken, and what a diagnosis must find.
type fault struct {
	mode   string // of the application
	host   string // of its configuration; default: the one that answers
	wait   int    // seconds until its entrypoint starts the application
	slow   int    // seconds until the proxy starts
	takes  int    // seconds from the pod's start until it is recorded
	dies   int    // seconds until the proxy is killed
	delete int    // seconds until the pod is deleted
	tweak  string // change of the pod: see stage
	code   string // empty if nothing is wrong
	of     string // container; default: the application
	vague  bool   // the evidence is not conclusive
	held   bool   // timed by events: the proxy starts when the application has exited, and the pod is recorded when the proxy is ready
}

var faults = map[string]fault{
	"race":         {mode: "strict", slow: 3, takes: 15, code: "startup-race"},
	"held-race":    {mode: "strict", held: true, code: "startup-race"},
	"short-race":   {mode: "strict", slow: 1, takes: 6, code: "startup-race"},
	"silent-race":  {mode: "swallow", slow: 2, takes: 7, code: "startup-race"},
	"clean":        {mode: "strict", wait: 3, takes: 7},
	"slow-clean":   {mode: "retry", wait: 3, slow: 1, takes: 9},
	"native":       {mode: "strict", slow: 2, takes: 7, tweak: "native"},
	"hold":         {mode: "strict", slow: 2, takes: 7, tweak: "hold"},
	"hold-fails":   {mode: "strict", slow: 5, takes: 9, tweak: "hold-fails", code: "hold-fails-open"},
	"down":         {mode: "strict", host: "legacy-config", wait: 3, takes: 25, code: "dependency-down"},
	"silent-down":  {mode: "swallow", host: "legacy-config", wait: 3, takes: 25, code: "dependency-down"},
	"excluded":     {mode: "strict", host: "legacy-config", slow: 3, takes: 9, tweak: "excluded", code: "dependency-down"},
	"proxy-user":   {mode: "strict", host: "legacy-config", slow: 3, takes: 9, tweak: "proxy-user", code: "dependency-down"},
	"no-rules":     {mode: "strict", host: "legacy-config", wait: 3, takes: 42, tweak: "no-rules", code: "capture-not-in-place", vague: true},
	"sibling":      {mode: "strict", host: "127.0.0.1", wait: 3, takes: 9, code: "sibling-down"},
	"no-name":      {mode: "strict", host: "config-sevrer", wait: 3, takes: 9, code: "name-not-resolved"},
	"no-dns":       {mode: "strict", host: "config-sevrer", wait: 3, takes: 9, tweak: "no-dns", code: "name-not-resolved"},
	"early":        {mode: "strict", host: "127.0.0.1:3500", slow: 3, takes: 15, code: "sibling-down"},
	"crash":        {mode: "crash", wait: 3, takes: 9, code: "own-crash"},
	"job":          {mode: "job", wait: 3, takes: 8, tweak: "job", code: "job-never-ends", of: "proxy"},
	"native-job":   {mode: "job", slow: 1, takes: 9, tweak: "native job"},
	"killed":       {mode: "retry", host: "legacy-config", wait: 3, takes: 18, tweak: "liveness", code: "killed-by-probe"},
	"shutdown":     {mode: "calls", wait: 2, takes: 9, delete: 7, tweak: "stop", code: "shutdown-race"},
	"tidy-stop":    {mode: "calls", wait: 2, takes: 9, delete: 7, tweak: "native stop"},
	"proxy-killed": {mode: "strict", wait: 3, takes: 12, dies: 7, code: "proxy-died", of: "proxy"},
	"init":         {mode: "strict", takes: 5, tweak: "init", code: "init-needs-network", of: "migrate"},
	"no-plane":     {mode: "swallow", wait: 1, takes: 20, tweak: "no-plane", code: "no-control-plane", of: "proxy"},
}

// table lists fault, form, and the runtimes with which they are staged. The log of a runtime with a
// "+" has the container runtime's timestamp on each line, as kubectl logs --timestamps prints it;
// for a runtime with a "-" the log of the proxy is missing.
var table = []struct {
	fault, form string
	runtimes    []string
}{
	{"race", "outrider", []string{"java", "node", "python", "ruby+", "php", "go", "perl", "curl", "redis+"}},
	{"race", "istio", []string{"java", "node", "python+", "go", "curl+", "perl"}},
	{"race", "linkerd", []string{"ruby", "php+"}},
	{"race", "kuma", []string{"go", "node+"}},
	{"race", "hand", []string{"python", "redis", "perl-"}},
	{"race", "istio", []string{"awesome-go", "awesome-java", "awesome-node", "awesome-python"}},
	{"down", "none", []string{"awesome-go", "awesome-java", "awesome-node", "awesome-python"}},
	{"short-race", "outrider", []string{"go", "perl", "node-"}},
	{"silent-race", "outrider", []string{"java", "node", "php", "nginx+"}},
	{"silent-race", "istio", []string{"python", "perl", "redis"}},
	{"silent-race", "linkerd", []string{"java+"}},
	{"silent-race", "hand", []string{"ruby"}},
	{"clean", "outrider", []string{"java", "ruby", "php", "nginx"}},
	{"clean", "istio", []string{"node", "redis"}},
	{"clean", "linkerd", []string{"go"}},
	{"clean", "kuma", []string{"python"}},
	{"clean", "dapr", []string{"node"}},
	{"clean", "hand", []string{"perl"}},
	{"clean", "none", []string{"curl"}},
	{"native", "istio", []string{"java", "curl"}},
	{"native", "outrider", []string{"python", "go"}},
	{"hold", "istio", []string{"node", "php"}},
	{"hold-fails", "istio", []string{"python", "java"}},
	{"down", "outrider", []string{"java", "node", "python", "curl"}},
	{"down", "istio", []string{"go", "ruby"}},
	{"down", "hand", []string{"php", "node"}},
	{"down", "none", []string{"java", "node", "python", "ruby", "php", "go", "perl", "curl", "redis"}},
	{"silent-down", "none", []string{"nginx", "java", "php"}},
	{"silent-down", "outrider", []string{"go"}},
	{"excluded", "istio", []string{"java", "go", "redis+"}},
	{"excluded", "linkerd", []string{"python"}},
	{"excluded", "outrider", []string{"node", "perl"}},
	{"proxy-user", "istio", []string{"python", "curl+"}},
	{"no-rules", "istio", []string{"go", "java"}},
	{"sibling", "outrider", []string{"python", "go", "redis", "curl"}},
	{"sibling", "istio", []string{"node", "java"}},
	{"sibling", "none", []string{"perl"}},
	{"early", "dapr", []string{"node", "python", "go+"}},
	{"no-name", "outrider", []string{"java", "go", "curl", "node"}},
	{"no-name", "none", []string{"ruby", "php", "nginx"}},
	{"no-dns", "istio", []string{"python", "redis"}},
	{"crash", "outrider", []string{"java", "node", "python", "go", "nginx"}},
	{"crash", "linkerd", []string{"ruby", "perl"}},
	{"crash", "none", []string{"php", "curl"}},
	{"job", "outrider", []string{"python", "curl"}},
	{"job", "istio", []string{"java", "perl"}},
	{"job", "kuma", []string{"ruby"}},
	{"native-job", "istio", []string{"go", "php"}},
	{"killed", "outrider", []string{"node"}},
	{"killed", "none", []string{"python", "go"}},
	{"shutdown", "hand", []string{"go"}},
	{"shutdown", "istio", []string{"java", "node", "python"}},
	{"tidy-stop", "istio", []string{"node", "go"}},
	{"proxy-killed", "hand", []string{"python"}},
	{"proxy-killed", "istio", []string{"go", "java"}},
	{"init", "istio", []string{"python", "curl", "go"}},
	{"init", "linkerd", []string{"node"}},
	{"no-plane", "outrider", []string{"java", "redis"}},
}

// An Incident is one case.
type Incident struct {
	Name string // RUNTIME-FORM-FAULT

	runtime, form, faultName string
	stamped, silent          bool
	fault
}

// Incidents returns the incidents of the table.
func Incidents() (out []Incident) {
	for _, row := range table {
		for _, r := range row.runtimes {
			out = append(out, New(r, row.form, row.fault))
		}
	}
	return out
}

// New returns the case of a runtime, a mesh's form and a fault, all of which must be in the tables.
func New(runtime, form, fault string) Incident {
	c := Incident{runtime: strings.TrimRight(runtime, "+-"), form: form, faultName: fault, fault: faults[fault]}
	c.stamped, c.silent = strings.HasSuffix(runtime, "+"), strings.HasSuffix(runtime, "-")
	c.Name = c.runtime + "-" + form + "-" + fault
	// The log of an Envoy that stands in for another mesh's proxy does not look like that mesh's log.
	c.silent = c.silent || form != "outrider" && form != "hand"
	// Without the proxy's log, a connection that the proxy cut could also have been cut behind it.
	c.vague = c.vague || fault == "down" && c.silent && form != "none"
	return c
}

// Missing returns an error if this machine lacks the runtime of the incident.
func (c Incident) Missing() error {
	program := runtimes[c.runtime][0]
	switch {
	case strings.HasPrefix(program, "/app/"):
		return nil // built by the test itself
	case program == "/usr/bin/java":
		program = "/usr/bin/javac" // belongs to the same package as java
	}
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%s is missing: %w", c.runtime, err)
	}
	return nil
}

// split sets a third of the cases aside, chosen by their names alone.
func split(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	if h.Sum32()%3 == 0 {
		return "test"
	}
	return "rules"
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
