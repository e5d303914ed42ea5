// Command incidents records incidents of pods for testdata/incidents: the entries of package
// recorder's table that have no folder yet.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"sync"

	"outrider.dev/internal/lab/localpod/containerinit"
	"outrider.dev/test/incidents/recorder"
)

func main() {
	containerinit.Become()
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
	var todo []recorder.Incident
	for _, c := range recorder.Incidents() {
		_, err := os.Stat(*out + "/" + c.Name)
		if !only.MatchString(c.Name) || *which == "" && err == nil {
			continue
		}
		if err := c.Missing(); err != nil {
			fmt.Printf("%s is not recorded: %v\n", c.Name, err)
			continue
		}
		todo = append(todo, c)
	}
	w, err := recorder.Open(recorder.Options{Root: ".", Bin: *bin, Envoy: *envoy}, todo)
	if err != nil {
		return err
	}
	defer w.Close()
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan bool, *atOnce)
	for _, c := range todo {
		slots <- true
		wg.Go(func() {
			defer func() { <-slots }()
			seen, err := w.Record(c)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				err = seen.Write(*out)
			}
			fmt.Printf("%-50s %v\n", c.Name, err)
		})
	}
	wg.Wait()
	return nil
}
