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

// ReadAll calls each with the name and the text of each file, in order, until it fails.
func ReadAll(cmd *cobra.Command, files []string, each func(name string, data []byte) error) error {
	for _, file := range files {
		name, data, err := Read(cmd, file)
		if err == nil {
			err = each(name, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// FirstError returns the first error that the results of a command report.
func FirstError[T interface{ Err() error }](results []T) error {
	for _, r := range results {
		if err := r.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Note prints what needs no action of the user.
func Note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.Root().Name(), fmt.Sprintf(format, args...))
}
