// Package cli contains the parts that Outrider's commands share: exit statuses, the format of errors, the
// version, the terminal, and flags with environment variables.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outrider.dev/internal/base/cli/visible"
)

// Exit statuses.
const (
	OK        = 0
	Failed    = 1 // the command ran, and failed or found a problem
	Misused   = 2 // the input is invalid; nothing was changed
	Undecided = 3 // the command ran within its bounds, and found neither a problem nor a proof that there is none
)

// A UsageError is the error for invalid input. The hint, if any, tells the user what to do instead.
type UsageError struct {
	Err  error
	Hint string
}

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// An ExitError is an error with a specific exit status, such as that of a child process. If Err is nil, nothing
// is printed, because the command has printed the error already.
type ExitError struct {
	Status int
	Err    error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Run executes root with args and returns the exit status. It prints an error once, to stderr, and also passes it
// to onError if that is not nil.
//
// Everything written to stderr, and to stdout if that is a terminal, passes through a [visible.Writer]. Other
// output, such as a manifest that is piped to a file, is not altered.
func Run(root *cobra.Command, args []string, stdout, stderr io.Writer, onError func(string)) int {
	shown := &visible.Writer{W: stderr}
	defer shown.Flush() // fails only if the terminal is gone
	stderr = shown
	if isTerminal(stdout) {
		shown := &visible.Writer{W: stdout}
		defer shown.Flush()
		stdout = shown
	}
	root.Flags().Bool("version", false, "print the version")
	if len(args) > 0 && args[0] == "--version" {
		args = append(versionArgs(root), args[1:]...)
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &UsageError{Err: unwrapValue(err), Hint: fmt.Sprintf("%s --help lists the flags", cmd.CommandPath())}
	})
	cmd, err := root.ExecuteC()
	if err == nil {
		return OK
	}
	var exit *ExitError
	if errors.As(err, &exit) && exit.Err == nil {
		return exit.Status
	}
	var usage *UsageError
	if !errors.As(err, &usage) && strings.HasPrefix(err.Error(), "unknown command") {
		usage = unknownCommand(cmd, err)
		err = usage
	}
	message := fmt.Sprintf("%s: error: %v\n", root.Name(), err)
	if hint := hintOf(err, usage); hint != "" {
		message += fmt.Sprintf("%s: hint: %s\n", root.Name(), hint)
	}
	fmt.Fprint(stderr, message)
	if onError != nil {
		onError(message)
	}
	switch {
	case usage != nil:
		return Misused
	case exit != nil:
		return exit.Status
	}
	return Failed
}

// versionArgs returns the arguments that replace --version: the subcommand version, with --client if it has that
// flag, so that it does not contact a cluster.
func versionArgs(root *cobra.Command) []string {
	args := []string{"version"}
	if cmd, _, err := root.Find(args); err == nil && cmd.Flags().Lookup("client") != nil {
		args = append(args, "--client")
	}
	return args
}

// unknownCommand returns the error for an argument that is not a command. If the command has the flag --filename,
// the argument was probably a file, and the hint says so.
func unknownCommand(cmd *cobra.Command, err error) *UsageError {
	if cmd.HasSubCommands() {
		return &UsageError{Err: err, Hint: cmd.CommandPath() + " --help lists the commands"}
	}
	argument := cmd.Flags().Arg(0)
	out := &UsageError{Err: fmt.Errorf("%s takes no argument, and has %q", cmd.CommandPath(), argument), Hint: cmd.CommandPath() + " --help lists the flags"}
	if cmd.Flags().Lookup("filename") != nil {
		out.Hint = "give files with -f: " + cmd.CommandPath() + " -f " + argument
	}
	return out
}

// hintOf returns the hint of the usage error, or of an error with a Hint method.
func hintOf(err error, usage *UsageError) string {
	if usage != nil && usage.Hint != "" {
		return usage.Hint
	}
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return ""
}

// unwrapValue removes pflag's text around an error about a value, because our own errors already name the flag,
// the value and the valid values.
func unwrapValue(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && invalid.Unwrap() != nil {
		return invalid.Unwrap()
	}
	return err
}

// envAnnotation is the key of the annotation that stores the environment variables of a flag.
const envAnnotation = "outrider.dev/env"

// BindEnv declares the environment variables from which [FromEnv] sets a flag that is not on the command line,
// and adds them to the flag's usage text. The first variable that is set is used.
func BindEnv(fs *pflag.FlagSet, flag string, variables ...string) {
	f := fs.Lookup(flag)
	if f == nil {
		panic("no flag --" + flag) // an error of the program, not of its input
	}
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[envAnnotation] = variables
	f.Usage += " [$" + strings.Join(variables, ", $") + "]"
}

// FromEnv sets flags that are not on the command line from their environment variables ([BindEnv]). An empty
// variable is ignored, except for a list whose default is "*" (everything): for such a list, an empty variable
// means an empty list, because no other value does.
func FromEnv(fs *pflag.FlagSet) error {
	var first error
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || first != nil {
			return
		}
		for _, name := range f.Annotations[envAnnotation] {
			value, ok := os.LookupEnv(name)
			if !ok || value == "" && f.DefValue != "*" {
				continue
			}
			if err := fs.Set(f.Name, value); err != nil {
				first = &UsageError{Err: fmt.Errorf("variable %s: %w", name, unwrapValue(err))}
			}
			return
		}
	})
	return first
}

// WriteJSON writes v as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
