// Package handoff makes one tool of two programs. Commands that link Helm's library are in outrider-operate,
// all others in outrider. Helm's templates call methods by name, for which the linker keeps every exported method
// of Kubernetes' clients and types: with Helm, outrider would be half as large again and take twice as long to start.
//
// Users call outrider alone. It lists the commands of outrider-operate, and becomes that program when one of them is
// called. Both must be of the same version.
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

// Program is the name of the program beside outrider.
const Program = "outrider-operate"

// commands are those of outrider-operate, each with the line that describes it.
var commands = map[string]string{
	"bug-report": "collect what a maintainer needs to find out why a mesh does not work",
	"check":      "find out whether Outrider can be installed in a cluster, or works there",
	"install":    "install Outrider in a cluster, or upgrade it",
	"manifest":   "print what outrider install applies",
	"uninstall":  "remove Outrider from a cluster",
	"upgrade":    "upgrade the control plane, as install does, or the proxies of running pods",
}

// Short returns the line that describes a command of outrider-operate.
func Short(command string) string { return commands[command] }

// Root returns the tool with some of its commands. Their flags are listed in the order in which they were added.
func Root(with ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "outrider",
		Short: "pods that start and stop without a race",
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // as a plugin of kubectl; usage texts then show "kubectl"
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

// Commands returns the commands of outrider-operate as outrider lists them. Each runs that program.
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

// Wanted reports whether arguments call a command of outrider-operate, or want its help or the completion of its
// arguments.
func Wanted(args []string) bool {
	if len(args) > 1 && slices.Contains([]string{"help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]) {
		args = args[1:]
	}
	return len(args) > 0 && commands[args[0]] != ""
}

// callerVersion is the environment variable in which outrider-operate finds the version of the outrider that runs it.
const callerVersion = "OUTRIDER_CALLER_VERSION"

const together = "each archive of a release has both programs: put " + Program + " of the same version into the folder of outrider"

// Run runs outrider-operate with arguments. If it returns, the result is that program's.
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

// CheckVersion returns an error if an outrider of another version runs this program, which is outrider-operate.
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
