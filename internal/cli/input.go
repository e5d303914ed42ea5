package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// maxInput bounds an input, in bytes: a decoder of YAML takes about 30 times as much memory. A
// dump of 10,000 pods has 100 MB.
const maxInput = 256 << 20

// Read returns the text of a file and the name to use for it in messages; "-" is standard
// input.
func Read(cmd *cobra.Command, file string) (name string, data []byte, err error) {
	name, from := "standard input", cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return file, nil, err
		}
		defer f.Close()
		name, from = file, f
	}
	data, err = io.ReadAll(io.LimitReader(from, maxInput+1))
	switch {
	case err != nil:
		err = fmt.Errorf("reading %s: %w", name, err)
	case len(data) > maxInput:
		err = fmt.Errorf("%s has more than %d MiB: want smaller files, each with a part of the documents", name, maxInput>>20)
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

// Note prints what needs no action of the user; an empty text is not printed.
func Note(cmd *cobra.Command, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.Root().Name(), text)
	}
}
