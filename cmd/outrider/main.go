// Command outrider is the command-line tool for users of Outrider. Installed on the PATH as
// kubectl-outrider, it is also "kubectl outrider".
package main

import (
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/outrider/internal/operate"
	"outrider.dev/internal/base/cli"
)

func main() {
	becomeContainer()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Commands that need Linux are listed on every system.
const (
	runShort  = "run a pod's containers as processes of this machine, by the kubelet's rules"
	demoShort = "show the race at a pod's start, and five ways to avoid it"
)

// run is main without the process. It returns the exit status: 0 for success, 1 for a failure or a finding,
// 2 for unusable input.
func run(args []string, stdout, stderr io.Writer) int {
	log.SetOutput(io.Discard) // Helm's SDK logs violations of the values' schema, which are also returned as errors
	root := &cobra.Command{
		Use:   "outrider",
		Short: "pods that start and stop without a race",
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // as a plugin of kubectl; usage texts then show "kubectl"
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl outrider"}
	}
	root.AddCommand(operate.NewBugReport(), operate.NewCheck(), operate.NewDashboard(), newDemo(), operate.NewDescribe(), newDiagnose(), newExplain(), newInject(), operate.NewInstall(), newLint(), operate.NewManifest(), newPlan(), operate.NewProxyConfig(), operate.NewProxyStatus(), operate.NewRotate(), newRules(), newRun(), newSimulate(), newUninject(), operate.NewUninstall(), operate.NewUpgrade(), newVerify(), operate.NewVersion())
	keepOrder(root)
	return cli.Run(root, args, stdout, stderr, nil)
}

// keepOrder lists the flags of all commands in the order in which they were added.
func keepOrder(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	for _, c := range cmd.Commands() {
		keepOrder(c)
	}
}
