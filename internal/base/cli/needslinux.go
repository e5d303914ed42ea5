package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// NeedsLinux returns the command that replaces a Linux command on other systems. It is listed in the help, and
// fails with a usage error when it is run.
func NeedsLinux(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              short + " (needs Linux)",
		Args:               cobra.ArbitraryArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &UsageError{Err: fmt.Errorf("%s needs Linux: it starts processes in network namespaces, which %s does not have", cmd.CommandPath(), runtime.GOOS)}
		},
	}
}
