package figures

import (
	"flag"
	"fmt"
	"os"

	_ "outrider.dev/test/process" // ends a bench together with the "go run" that started it
)

// Main parses the flags of the process and runs measure. The integer flags named in positive must be 1 or more.
// The process exits with status 1 if an argument is invalid or measure fails, and with 2 if package flag cannot
// parse the flags.
func Main(measure func() error, positive ...string) {
	flag.Parse()
	err := check(positive)
	if err == nil {
		err = measure()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func check(positive []string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("%q: there are flags only; -help lists them", flag.Arg(0))
	}
	for _, name := range positive {
		if n, ok := flag.Lookup(name).Value.(flag.Getter).Get().(int); ok && n < 1 {
			return fmt.Errorf("-%s=%d: want 1 or more", name, n)
		}
	}
	return nil
}
