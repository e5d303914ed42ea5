// Package shell analyses the command lines of containers, and the shell scripts in them: the programs that they
// run ([Calls]), what their statements wait for and how reliably ([Statements]), the time for which they sleep
// ([Times]), and whether two command lines run the same program ([SameProgram]).
//
// The package only reads; it runs nothing. For a script that cannot be parsed, or that nests too deeply, it
// returns no calls and no statements. If the meaning of a script is uncertain, the package assumes the meaning
// with fewer guarantees.
//
// Files:
//
//	argv.go       the shell in a command line, and its script
//	launcher.go   programs that only start another one
//	calls.go      the programs that a command line runs
//	shell.go      the statements of a script
//	polling.go    how a statement polls, and which guarantees that gives
//	sleeps.go     the time for which a command sleeps, and whether it ends
//	same.go       whether two command lines run the same program
//	onlywaits.go  the statements that may be left out of a script
//	awaits.go     the commands for whose success a command line waits
package shell
