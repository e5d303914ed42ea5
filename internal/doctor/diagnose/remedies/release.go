package remedies

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A release is the version of a mesh. The versions of Linkerd's edge channel are dates (year, month, number), and only
// the channel orders them; so what is new has a number in each channel.
type release struct {
	edge   bool
	number [3]int
}

// since says from which version on a mesh has something. Without a number for edge releases, these have it.
type since struct{ release, edge [3]int }

// tags matches the tags of images that name a version: 1.21.2, 1.24.1-distroless, stable-2.14.10, edge-25.10.2, v1.31.0.
var tags = regexp.MustCompile(`^(?:(stable|enterprise|preview|edge)-)?v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:[-._+].*)?$`)

// releaseOf returns the version that the tag of an image names, and false if it names none.
func releaseOf(image string) (release, bool) {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndexByte(image, '/')+1:]
	_, tag, _ := strings.Cut(name, ":")
	m := tags.FindStringSubmatch(tag)
	if m == nil {
		return release{}, false
	}
	r := release{edge: m[1] == "edge"}
	for i := range r.number {
		r.number[i], _ = strconv.Atoi(m[2+i]) // digits, or nothing
	}
	return r, true
}

// has reports whether a version has what there is since then.
func (r release) has(s since) bool {
	from := s.release
	if r.edge {
		from = s.edge
	}
	return slices.Compare(r.number[:], from[:]) >= 0
}

func (r release) String() string {
	text := fmt.Sprintf("%d.%d.%d", r.number[0], r.number[1], r.number[2])
	if r.edge {
		return "edge-" + text
	}
	return text
}
