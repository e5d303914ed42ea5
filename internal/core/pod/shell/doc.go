// Package shell reads the command lines of containers, and the shell scripts in them: which programs they
// run ([Calls]), what their statements wait for and how reliably ([Statements]), how long they sleep
// ([Times]), and whether two run the same program ([SameProgram]).
//
// The package runs nothing and looks nothing up. A script that cannot be parsed, or that nests too deeply,
// has no calls and no statements. If a script can be understood in two ways, the one that promises less
// counts.
//
// Where to read:
//
//	argv.go       the shell in a command line, and its script
//	calls.go      the programs that a command line runs
//	shell.go      the statements of a script
//	polling.go    how a statement polls, and what that keeps
//	sleeps.go     how long a command sleeps
//	same.go       whether two command lines run the same program
//	onlywaits.go  the statements that may be left out of a script
package shell
