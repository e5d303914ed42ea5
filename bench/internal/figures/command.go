package figures

import (
	"errors"
	"flag"
	"fmt"
	"io"

	_ "outrider.dev/test/process" // a bench ends with the "go run" that started it
)

// Flags returns the flags of the measurement of a folder below bench.
func Flags(name string, stderr io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("bench/"+name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	return fs
}

// Run parses the arguments and measures. It returns the exit status: 0 measured, 1 something
// failed, 2 the arguments are unusable.
func Run(fs *flag.FlagSet, args []string, measure func() error) int {
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil: // the flag set has printed it
		return 2
	case fs.NArg() > 0:
		err = Usage("%q: there are flags only; -help lists them", fs.Arg(0))
	default:
		err = measure()
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(fs.Output(), "%s: error: %v\n", fs.Name(), err)
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

type usageError struct{ error }

// Usage returns an error about a flag's value.
func Usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Positive returns an error if one of the flags, which are whole numbers, is less than 1.
func Positive(fs *flag.FlagSet, names ...string) error {
	for _, name := range names {
		f := fs.Lookup(name)
		if n, ok := f.Value.(flag.Getter).Get().(int); ok && n < 1 {
			return Usage("-%s=%d: want 1 or more", name, n)
		}
	}
	return nil
}
