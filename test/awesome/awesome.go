// Package awesome runs the applications of examples/awesome-app as processes: the fragile and the robust
// form in each language. Its tests inject faults into the configuration server and the pod.
package awesome

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Languages lists the languages in which the application is written.
var Languages = []string{"go", "java", "node", "python"}

// The forms of the application: Fragile exits if it cannot fetch its settings at the start, Robust serves without them.
const (
	Fragile = "fragile"
	Robust  = "robust"
)

// Install builds the applications from the sources below root, the repository's folder, into dir. If this machine
// lacks the tools for a language, the first result has an entry for the language, and err stays nil.
func Install(root, dir string) (missing map[string]error, err error) {
	missing = map[string]error{}
	for language, program := range map[string]string{"java": "/usr/bin/javac", "node": "/usr/bin/node", "python": "/usr/bin/python3"} { // any order: independent look-ups
		if _, err := os.Stat(program); err != nil {
			missing[language] = err
		}
	}
	source := filepath.Join(root, "examples", "awesome-app")
	for _, language := range []string{"node", "python"} {
		if err := os.CopyFS(filepath.Join(dir, language), os.DirFS(filepath.Join(source, language))); err != nil {
			return missing, err
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return missing, err
	}
	build := []*exec.Cmd{exec.Command("go", "build", "-C", filepath.Join(source, "go"), "-trimpath", "-o", dir+"/go/", "./"+Fragile, "./"+Robust)}
	if missing["java"] == nil {
		files, err := filepath.Glob(filepath.Join(source, "java", "*.java"))
		if err != nil {
			return missing, err
		}
		build = append(build, exec.Command("/usr/bin/javac", append([]string{"-Xlint:all", "-Werror", "-d", dir + "/java"}, files...)...))
	}
	for _, cmd := range build {
		if out, err := cmd.CombinedOutput(); err != nil {
			return missing, fmt.Errorf("%s: %w: %s", cmd.Path, err, out)
		}
	}
	return missing, nil
}

// Command returns the command line of a form; dir is the folder that Install filled.
func Command(dir, language, form string) []string {
	switch language {
	case "java":
		return []string{"/usr/bin/java", "-cp", dir + "/java", map[string]string{Fragile: "Fragile", Robust: "Robust"}[form]}
	case "node":
		return []string{"/usr/bin/node", dir + "/node/" + form + ".mjs"}
	case "python":
		return []string{"/usr/bin/python3", dir + "/python/" + form + ".py"}
	default:
		return []string{dir + "/go/" + form}
	}
}
