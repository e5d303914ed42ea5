// Command witness is the program in the containers of a recorded pod. It behaves as its
// arguments say and records the kubelet's actions on it, with the time.
//
//	witness run [life=2s,1s] [code=1] [stop=3s|never] [healthy=1s|never] [sick=5s]
//	            [http=8080] [tcp=8081] [grpc=8082]
//	witness hook postStart|preStop [for=3s|healthy|never] [fail=1]
//	witness probe startup|liveness|readiness [for=5s]
//
// A list has a value for each start of the container; after the last life it runs
// until SIGTERM. fail=2 means that the first two calls fail, fail=1- that
// all but the first do, fail=all that every one does.
//
// Every record is a line in /trace/log of the pod's directory:
// nanoseconds since 1970, the container's name, words.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const dir = "/trace/"

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: witness run|hook|probe ...")
		os.Exit(2)
	}
	switch args[0] {
	case "run":
		run(options(args[1:]))
	case "hook":
		os.Exit(hook(args[1], options(args[2:])))
	case "probe":
		os.Exit(probe(args[1], options(args[2:])))
	}
}

// options parses the words after a command, as "name=value".
func options(words []string) map[string]string {
	o := map[string]string{}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		o[name] = value
	}
	return o
}

func name() string { return os.Getenv("WITNESS") }

func writeLine(format string, args ...any) { writeLineOf(name(), format, args...) }

// writeLineOf writes one line. A write of this size is atomic.
func writeLineOf(who, format string, args ...any) {
	f, err := os.OpenFile(dir+"log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%d %s %s\n", time.Now().UnixNano(), who, fmt.Sprintf(format, args...))
}

// count returns how often it was called for this word before, and counts the call.
func count(what string) int {
	file := dir + name() + "." + what
	text, _ := os.ReadFile(file)
	n := len(text)
	os.WriteFile(file, append(text, '.'), 0o666)
	return n
}

// at returns the n-th element of a list; false if there is none.
func at(list string, n int) (string, bool) {
	all := strings.Split(list, ",")
	if list == "" || n >= len(all) {
		return "", false
	}
	return all[n], true
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil && text != "" {
		writeLine("bad duration %q", text)
	}
	return d
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// fails reports whether the n-th call should fail.
func fails(option string, n int) bool {
	if from, ok := strings.CutSuffix(option, "-"); ok {
		return n >= number(from)
	}
	return option == "all" || n < number(option)
}

// hook is called as a program in the container, or by HTTP with as=NAME.
func hook(which string, o map[string]string) int {
	who := name()
	if o["as"] != "" {
		who = o["as"]
	}
	n := count(which)
	writeLineOf(who, "run-hook %s", which)
	wait(o["for"])
	ok := !fails(o["fail"], n)
	writeLineOf(who, "hook-returned %s %s", which, okWord(ok))
	return status(ok)
}

func wait(how string) {
	switch how {
	case "never":
		select {}
	case "healthy":
		for !healthy() {
			time.Sleep(5 * time.Millisecond)
		}
	default:
		time.Sleep(duration(how))
	}
}

func probe(which string, o map[string]string) int {
	writeLine("run-probe %s", which)
	wait(o["for"])
	ok := healthy()
	writeLine("probe-answered %s %s", which, okWord(ok))
	return status(ok)
}

func okWord(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}

func status(ok bool) int {
	if ok {
		return 0
	}
	return 1
}

func healthFile() string { return dir + name() + ".healthy" }

func healthy() bool {
	_, err := os.Stat(healthFile())
	return err == nil
}
