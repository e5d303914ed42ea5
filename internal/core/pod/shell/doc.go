// Package shell reads the command lines of containers, and the shell scripts in them: which programs
// they run ([Calls]), what their statements wait for and how surely ([Statements]), how much time
// they take by themselves ([Times]), and whether one runs the same program as another ([SameProgram]).
//
// Nothing is run or looked up. A script that cannot be parsed, or that nests too deeply, has no calls and
// no statements; where a script allows two readings, the one that promises less is taken.
//
// Where to read:
//
//	argv.go       the shell in a command line, and its script
//	calls.go      the programs that a command line runs
//	shell.go      the statements of a script
//	polling.go    how a statement polls, and what that keeps
//	sleeps.go     what a command says about its own time
//	same.go       whether two command lines run the same program
//	onlywaits.go  what may be left out of a script
package shell
