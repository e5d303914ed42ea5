// Package handoff combines two programs into one tool. Commands that need Helm's library are in the program
// outrider-operate, all others in outrider. The reason is size: Helm's templates call methods by name, so that the
// linker keeps every exported method of Kubernetes' clients and types. With Helm, outrider would be half as large
// again and take twice as long to start.
//
// Users only call outrider. It lists the commands of outrider-operate too, and becomes that program when one of them
// is called. Both programs must have the same version.
package handoff

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
)

// Program is the name of the second program.
const Program = "outrider-operate"

// commands maps the commands of outrider-operate to their descriptions, of one line each.
var commands = map[string]string{
	"bug-report": "collect what a maintainer needs to find out why a mesh does not work",
	"check":      "find out whether Outrider can be installed in a cluster, or works there",
	"install":    "install Outrider in a cluster, or upgrade it",
	"manifest":   "print what outrider install applies",
	"uninstall":  "remove Outrider from a cluster",
	"upgrade":    "upgrade the control plane, as install does, or the proxies of running pods",
}

// Short returns the one-line description of a command of outrider-operate.
func Short(command string) string { return commands[command] }

// Root returns the root command of outrider with the given commands. Help texts list flags in the order in which they
// were added.
func Root(with ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "outrider",
		Short: "pods that start and stop without a race",
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // this is a kubectl plugin, so usage texts must show "kubectl"
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl outrider"}
	}
	root.AddCommand(with...)
	keepOrder(root)
	return root
}

func keepOrder(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	for _, c := range cmd.Commands() {
		keepOrder(c)
	}
}

// Commands returns the commands of outrider-operate in the form in which outrider lists them. Each command runs
// outrider-operate.
func Commands() (out []*cobra.Command) {
	for name, short := range commands { // any order: cobra sorts commands
		out = append(out, &cobra.Command{
			Use:                name,
			Short:              short,
			DisableFlagParsing: true,
			RunE:               func(_ *cobra.Command, args []string) error { return Run(append([]string{name}, args...)) },
		})
	}
	return out
}

// Wanted reports whether the arguments of outrider call a command of outrider-operate, or request help for it or the
// completion of its arguments.
func Wanted(args []string) bool {
	if len(args) > 1 && slices.Contains([]string{"help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]) {
		args = args[1:]
	}
	return len(args) > 0 && commands[args[0]] != ""
}

// callerVersion is the environment variable by which outrider passes its version to outrider-operate.
const callerVersion = "OUTRIDER_CALLER_VERSION"

const together = "each archive of a release has both programs: put " + Program + " of the same version into the folder of outrider"

// Run runs outrider-operate with arguments. It returns only if the program could not be started, or if it ran as a
// child; the error then contains its exit status.
func Run(args []string) error {
	file, err := find()
	if err != nil {
		return &cli.UsageError{Err: err, Hint: together}
	}
	err = os.Setenv(callerVersion, cli.Version())
	if err == nil {
		err = become(file, args)
	}
	var exit *cli.ExitError
	if err != nil && !errors.As(err, &exit) {
		return &cli.UsageError{Err: fmt.Errorf("running %s: %w", file, err), Hint: together}
	}
	return err
}

// find returns the path of outrider-operate, which is in the folder of this program or in PATH.
func find() (string, error) {
	name := Program
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("looking for %s in the folder of this program: %w", name, err)
	}
	beside := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	file, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("this command needs the program %s, and neither %s nor a folder of PATH has it", name, filepath.Dir(beside))
	}
	return file, nil
}

// CheckVersion is called by outrider-operate. It returns an error if the outrider that runs it has another version.
func CheckVersion() error {
	caller, called := os.LookupEnv(callerVersion)
	if own := cli.Version(); called && caller != own {
		file, err := os.Executable()
		if err != nil {
			file = Program
		}
		return &cli.UsageError{Err: fmt.Errorf("%s has version %s, and outrider has version %s", file, own, caller), Hint: together}
	}
	return os.Unsetenv(callerVersion)
}
