// Command node runs inside the namespaces of a test cluster. Only package cluster starts it.
package main

import (
	"fmt"
	"io"
	"os"

	"outrider.dev/test/cluster/internal/node"
)

const usage = `usage: node init CONFIG | node run CONFIG | node control REQUEST | node enter PID COMMAND [ARG...] | node become COMMAND [ARG...]
Package test/cluster starts it.
`

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run is main with its arguments and output as parameters. It returns the exit status: 0 success, 1 failure,
// 2 usage; the subcommand enter returns the exit status of the command that it runs.
func run(args []string, stderr io.Writer) int {
	var err error
	switch {
	case len(args) == 2 && args[0] == "init":
		err = node.Init(args[1])
	case len(args) == 2 && args[0] == "run":
		err = node.Run(args[1])
	case len(args) == 2 && args[0] == "control":
		err = node.Control(args[1])
	case len(args) > 2 && args[0] == "enter":
		var status int
		if status, err = node.Enter(args[1], args[2:]); err == nil {
			return status
		}
	case len(args) > 1 && args[0] == "become":
		err = node.Become(args[1:])
	default:
		fmt.Fprint(stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintf(stderr, "node %s: error: %v\n", args[0], err)
		return 1
	}
	return 0
}
