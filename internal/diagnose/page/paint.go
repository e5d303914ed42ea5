package page

import "outrider.dev/internal/diagnose"

// colours are those of the parts of a text (SGR, ECMA-48 8.3.117), as package visible lets them pass.
var colours = map[string]string{
	string(diagnose.Nothing): "32", string(diagnose.Found): "31", string(diagnose.Undecided): "33",
	"heading": "1", "command": "36", "patch": "32",
}

// paint is the style of a terminal.
func paint(what, text string) string {
	if colours[what] == "" || text == "" {
		return text
	}
	return "\x1b[" + colours[what] + "m" + text + "\x1b[0m"
}
