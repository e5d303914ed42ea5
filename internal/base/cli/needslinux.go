package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// NeedsLinux returns the stand-in for a Linux command on another system: it is listed, but refuses to run.
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
