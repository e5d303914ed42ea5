package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// A choice is the value of a flag that accepts only the given words.
type choice struct {
	flag  string
	value *string
	words []string
}

func (c choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("--%s=%q: must be one of %s", c.flag, s, strings.Join(c.words, ", "))
	}
	*c.value = s
	return nil
}

func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

// Type returns the name of the value's type in usage texts.
func (c choice) Type() string { return "string" }

// Choice adds a flag that accepts one of the given words. The usage text lists the words, and a shell completes
// them. The default is *value, or the first word if that is empty.
func Choice(cmd *cobra.Command, value *string, flag, short, usage string, words ...string) {
	if *value == "" {
		*value = words[0]
	}
	cmd.Flags().VarP(choice{flag, value, words}, flag, short, usage+": "+strings.Join(words, ", "))
	Complete(cmd, flag, words...)
}

// Complete sets the words that a shell completes for a flag.
func Complete(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // an error of the program, not of its input
	}
}

// CompleteFiles sets the file name extensions that a shell completes for a flag.
func CompleteFiles(cmd *cobra.Command, flag string, endings ...string) {
	if err := cmd.MarkFlagFilename(flag, endings...); err != nil {
		panic(err)
	}
}
