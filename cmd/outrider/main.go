// Command outrider is the command-line tool for users of Outrider. If it is also in PATH under the name
// kubectl-outrider, it can be called as "kubectl outrider".
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/handoff"
	"outrider.dev/cmd/outrider/internal/operate"
	"outrider.dev/internal/base/cli"
)

func main() {
	becomeContainer()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Descriptions of the commands that need Linux. They are here because help lists these commands on every system.
const (
	runShort  = "run a pod's containers as processes of this machine, by the kubelet's rules"
	demoShort = "show the race at a pod's start, and five ways to avoid it"
)

// run runs a command, and returns the exit status: 0 for success, 1 for a failure or a finding, 2 for
// unusable input, 3 for a search that a bound ended.
func run(args []string, stdout, stderr io.Writer) int {
	if handoff.Wanted(args) {
		elsewhere := &cobra.Command{Use: "outrider", RunE: func(*cobra.Command, []string) error { return handoff.Run(args) }}
		return cli.Run(elsewhere, []string{}, stdout, stderr, nil)
	}
	commands := []*cobra.Command{newDemo(), newDiagnose(), newExplain(), newInject(), newLint(), newPlan(), newRules(), newRun(), newSimulate(), newUninject(), newVerify(),
		operate.NewDashboard(), operate.NewDescribe(), operate.NewProxyConfig(), operate.NewProxyStatus(), operate.NewRotate(), operate.NewVersion()}
	return cli.Run(handoff.Root(append(commands, handoff.Commands()...)...), args, stdout, stderr, nil)
}
