package main

import (
	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/view"
	"outrider.dev/cmd/outrider/internal/codes"
	"outrider.dev/internal/base/cli"
)

const explainExamples = `  # what a code of lint, check or diagnose means, and what to do
  outrider explain startup-race

  # all codes
  outrider explain`

func newExplain() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "explain [CODE]",
		Short:   "explain a code of lint, check or diagnose",
		Long:    "Prints what a code means, whether lint, check or diagnose finds it, and what to do. Without a code,\nlists all codes.",
		Example: explainExamples,
		Args:    cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
			for _, c := range codes.All() {
				out = append(out, string(c.Code)+"\t"+c.Title)
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w := cmd.OutOrStdout()
			if len(args) == 0 {
				return view.Codes(w, output, codes.All())
			}
			c, note, err := codes.Find(args[0])
			if err != nil {
				return &cli.UsageError{Err: err, Hint: "outrider explain lists all"}
			}
			cli.Note(cmd, "%s", note)
			return view.Code(w, cli.TerminalOf(w), output, c)
		},
	}
	cli.Choice(cmd, &output, "output", "o", "how to print", "text", "json")
	return cmd
}
