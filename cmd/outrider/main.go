// Command outrider is what users of Outrider run. As kubectl-outrider on the PATH it is
// "kubectl outrider" too.
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

// What needs Linux is listed on every system.
const (
	runShort  = "run a pod's containers as processes of this machine, by the kubelet's rules"
	demoShort = "show the race at a pod's start, and five ways to avoid it"
)

// run is main without the process. It returns the exit status: 0 success, 1 it failed
// or found something, 2 the input is unusable.
func run(args []string, stdout, stderr io.Writer) int {
	log.SetOutput(io.Discard) // Helm's SDK logs there what the schema of the values refuses anyway
	root := &cobra.Command{
		Use:   "outrider",
		Short: "pods that start and stop without a race",
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // as a plugin of kubectl, which usage texts then name
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
