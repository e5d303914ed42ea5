package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Read returns the text of a file and the name to use for it in messages; "-" is standard
// input.
func Read(cmd *cobra.Command, file string) (name string, data []byte, err error) {
	if file != "-" {
		data, err = os.ReadFile(file)
		return file, data, err
	}
	name = "standard input"
	if data, err = io.ReadAll(cmd.InOrStdin()); err != nil {
		err = fmt.Errorf("reading %s: %w", name, err)
	}
	return name, data, err
}

// Note prints what the user should know but need not act on.
func Note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.Root().Name(), fmt.Sprintf(format, args...))
}
