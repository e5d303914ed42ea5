package cli

import (
	"os/exec"
	"runtime"
)

// opener returns the command that opens an address in the user's browser, for a value of runtime.GOOS.
func opener(system string) []string {
	switch system {
	case "darwin":
		return []string{"open"}
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	return []string{"xdg-open"}
}

// Browse opens an address in the user's browser, and does not wait for it.
func Browse(address string) error {
	words := append(opener(runtime.GOOS), address)
	cmd := exec.Command(words[0], words[1:]...) //nolint:noctx // the browser must continue when our command ends
	if err := cmd.Start(); err != nil {
		return err
	}
	go cmd.Wait() // avoids a zombie; the exit status is ignored because it does not show whether the page was opened
	return nil
}
