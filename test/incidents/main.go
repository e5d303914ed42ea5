// Command incidents records incidents of pods for testdata/incidents: each entry of its table (cases.go) is
// staged with real processes on a private machine (package localpod), with the kernel's own refusals,
// by real rules and a real Envoy. What a user of kubectl would see of it is written to a folder.
//
//	world.go   the machine: control plane, configuration service, DNS
//	stage.go   a case becomes a pod, runs, and is watched
//	object.go  what was seen becomes the pod's object, events and logs
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "incidents:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("out", "testdata/incidents", "where folders are written")
	bin := flag.String("bin", "bin", "folder of the commands")
	envoy := flag.String("envoy", ".cache/envoy/envoy", "Envoy's binary")
	which := flag.String("run", "", "record only cases whose names this matches; default: those that are not there yet")
	atOnce := flag.Int("p", 5, "pods at a time")
	flag.Parse()
	only, err := regexp.Compile(*which)
	if err != nil {
		return err
	}
	var todo []incident
	for _, c := range cases() {
		_, err := os.Stat(*out + "/" + c.name)
		if only.MatchString(c.name) && (*which != "" || err != nil) {
			todo = append(todo, c)
		}
	}
	w, err := open(*bin, *envoy)
	if err != nil {
		return err
	}
	defer w.close()
	for name, c := range runtimes { // any order: all that is missing is printed
		if _, err := os.Stat(c[0]); err != nil && !strings.HasPrefix(c[0], "/app/") {
			fmt.Printf("%s is missing: its cases are not recorded: %v\n", name, err)
			todo = slices.DeleteFunc(todo, func(c incident) bool { return c.runtime == name })
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan bool, *atOnce)
	for _, c := range todo {
		slots <- true
		wg.Go(func() {
			defer func() { <-slots }()
			seen, err := w.record(c)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				err = seen.write(*out)
			}
			fmt.Printf("%-50s %v\n", c.name, err)
		})
	}
	wg.Wait()
	return nil
}
