// Command outrider-agent is the program of Outrider that runs in a pod. It can also be called by
// Istio's names: istio-iptables is "outrider-agent capture", and pilot-agent is outrider-agent.
package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// run is main with the process's arguments and streams as parameters. It returns the exit status:
// 0 success, 1 failure, 2 the input cannot be used.
func run(argv []string, stdout, stderr io.Writer) int {
	name, args := filepath.Base(argv[0]), argv[1:]
	root := &cobra.Command{
		Use:   "outrider-agent",
		Short: "the program of Outrider that runs in a pod",
	}
	switch name {
	case "istio-iptables":
		args = append([]string{"istio-iptables"}, args...)
	case "pilot-agent":
		root.Use = name
	}
	termination := &terminationLog{path: defaultTerminationLog()}
	root.AddCommand(commands(termination, args)...)
	if name == "pilot-agent" {
		for _, cmd := range root.Commands() {
			if slices.Contains([]string{"wait", "request"}, cmd.Name()) { // other injectors' hooks pass log flags
				cmd.FParseErrWhitelist.UnknownFlags = true
			}
		}
	}
	code := cli.Run(root, args, stdout, stderr, termination.write)
	if name == "pilot-agent" && (code == cli.Failed || code == cli.Misused) {
		return 255 // as Istio does for any error
	}
	return code
}

// commands returns the command that args name, or all commands if args name none. It makes only the
// commands that it returns, because making the flags of all commands takes longer than a whole run
// of a gate.
func commands(termination *terminationLog, args []string) (out []*cobra.Command) {
	all := []struct {
		names []string
		make  func() *cobra.Command
	}{
		{[]string{"capture", "istio-iptables"}, func() *cobra.Command { return newCapture(termination) }},
		{[]string{"init"}, func() *cobra.Command { return newInit(termination) }},
		{[]string{"root-stage"}, func() *cobra.Command { return newRootStage(termination) }},
		{[]string{"captured"}, newCaptured},
		{[]string{"proxy"}, func() *cobra.Command { return newProxy(termination, args) }},
		{[]string{"gate"}, func() *cobra.Command { return newGate(termination) }},
		{[]string{"started"}, newStarted},
		{[]string{"held"}, newHeld},
		{[]string{"pre-stop"}, newPreStop},
		{[]string{"copy"}, newCopy},
		{[]string{"wait"}, newWait},
		{[]string{"request"}, newRequest},
		{[]string{"version"}, cli.VersionCommand},
	}
	for _, c := range all {
		if len(args) > 0 && slices.Contains(c.names, args[0]) {
			return []*cobra.Command{c.make()}
		}
	}
	for _, c := range all {
		out = append(out, c.make())
	}
	return out
}
