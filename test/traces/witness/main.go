// Command witness is the program in the containers of a recorded pod. Its arguments define its
// behaviour. It records the actions of the kubelet that it notices, with their times.
//
//	witness run [life=2s,1s] [code=1] [stop=3s|never] [healthy=1s|never] [sick=5s]
//	            [http=8080] [tcp=8081] [grpc=8082]
//	witness hook postStart|preStop [for=3s|healthy|never] [fail=1]
//	witness probe startup|liveness|readiness [for=5s]
//
// life and code are lists with a value for each start of the container. Without a life
// the container runs until SIGTERM. fail=2 means that the first two calls fail, fail=1- that all
// calls but the first fail, fail=all that every call fails.
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

// writeLineOf writes a line to the log. Several processes may write at once, because a write of this size is atomic.
func writeLineOf(who, format string, args ...any) {
	f, err := os.OpenFile(dir+"log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%d %s %s\n", time.Now().UnixNano(), who, fmt.Sprintf(format, args...))
}

// count returns the number of earlier calls with the same argument in this container, and counts this call.
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

// fails reports whether call n, counted from 0, should fail.
func fails(option string, n int) bool {
	if from, ok := strings.CutSuffix(option, "-"); ok {
		return n >= number(from)
	}
	return option == "all" || n < number(option)
}

// hook handles a call of a hook and returns its exit status. If it is called via HTTP, the option "as" names the
// container that has the hook.
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
