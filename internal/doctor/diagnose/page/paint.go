package page

import (
	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/diagnose"
)

// colours has the codes for [visible.Paint], by the part of the text.
var colours = map[string]string{
	string(diagnose.Nothing): "32", string(diagnose.Found): "31", string(diagnose.Undecided): "33",
	"heading": "1", "command": "36", "patch": "32",
}

// paint is the style of a terminal.
func paint(what, text string) string {
	if colours[what] == "" || text == "" {
		return text
	}
	return visible.Paint(colours[what], text)
}
