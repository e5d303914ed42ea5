// Command outrider-agent is the part of Outrider that runs in a pod. It answers to
// Istio's names too: istio-iptables is "outrider-agent capture", and pilot-agent is
// outrider-agent.
package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 fine, 1 it failed,
// 2 the input cannot be used.
func run(argv []string, stdout, stderr io.Writer) int {
	name, args := filepath.Base(argv[0]), argv[1:]
	root := &cobra.Command{
		Use:   "outrider-agent",
		Short: "the part of Outrider that runs in a pod",
	}
	switch name {
	case "istio-iptables":
		args = append([]string{"istio-iptables"}, args...)
	case "pilot-agent":
		root.Use = name
	}
	termination := &terminationLog{path: defaultTerminationLog()}
	root.AddCommand(newCapture(termination), newInit(termination), newRootStage(termination), newCaptured(), newProxy(termination, args), newGate(termination), newHeld(), newCopy(), newWait(), newRequest(), cli.VersionCommand())
	if name == "pilot-agent" {
		for _, cmd := range root.Commands() {
			if slices.Contains([]string{"wait", "request"}, cmd.Name()) { // others' hooks give log flags
				cmd.FParseErrWhitelist.UnknownFlags = true
			}
		}
	}
	code := cli.Run(root, args, stdout, stderr, termination.write)
	if name == "pilot-agent" && (code == cli.Failed || code == cli.Misused) {
		return 255 // Istio's, for any error
	}
	return code
}
