package cli

import (
	"os/exec"
	"runtime"
)

// openers open an address in the user's browser.
var openers = map[string][]string{
	"darwin":  {"open"},
	"windows": {"rundll32", "url.dll,FileProtocolHandler"},
}

// Browse opens an address in the user's browser, and does not wait for it.
func Browse(address string) error {
	opener, ok := openers[runtime.GOOS]
	if !ok {
		opener = []string{"xdg-open"}
	}
	cmd := exec.Command(opener[0], append(opener[1:], address)...) //nolint:noctx // it stays when the command ends
	if err := cmd.Start(); err != nil {
		return err
	}
	go cmd.Wait() // so that it is no zombie; its status says nothing about the page
	return nil
}
