package inject

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/podspec"
)

var digestA = "sha256:" + strings.Repeat("a1", 32)

// Argv follows Kubernetes' table of command, args, ENTRYPOINT and CMD (kubernetes.io/docs: "Define a Command
// and Arguments for a Container").
func TestWhatAContainerRuns(t *testing.T) {
	entrypoint, cmd := []string{"/ep", "-1"}, []string{"cmd"}
	tests := map[string]struct {
		image imagecmd.Command
		args  []string
		want  []string
		why   string
	}{
		"both of the image":           {imagecmd.Command{Entrypoint: entrypoint, Cmd: cmd}, nil, []string{"/ep", "-1", "cmd"}, ""},
		"arguments stand for CMD":     {imagecmd.Command{Entrypoint: entrypoint, Cmd: cmd}, []string{"arg"}, []string{"/ep", "-1", "arg"}, ""},
		"no arguments are none":       {imagecmd.Command{Entrypoint: entrypoint, Cmd: cmd}, []string{}, []string{"/ep", "-1", "cmd"}, ""},
		"no CMD":                      {imagecmd.Command{Entrypoint: entrypoint}, nil, []string{"/ep", "-1"}, ""},
		"no ENTRYPOINT":               {imagecmd.Command{Cmd: cmd}, nil, []string{"cmd"}, ""},
		"only arguments":              {imagecmd.Command{Cmd: cmd}, []string{"/app"}, []string{"/app"}, ""},
		"nothing":                     {imagecmd.Command{}, nil, nil, "neither ENTRYPOINT nor CMD"},
		"an image's dollar is itself": {imagecmd.Command{Entrypoint: []string{"$(A)", "$$", "a$"}}, []string{"$(B)"}, []string{"$$(A)", "$$$$", "a$$", "$(B)"}, ""},
		"unknown":                     {imagecmd.Command{Entrypoint: entrypoint, Why: "why"}, nil, nil, "why"},
		"s6-overlay":                  {imagecmd.Command{Entrypoint: []string{"/init"}}, nil, nil, "process 1"},
		"systemd as an argument":      {imagecmd.Command{}, []string{"/usr/lib/systemd/systemd"}, nil, "process 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, why := tt.image.Argv(&corev1.Container{Image: "shop", Args: tt.args})
			if tt.why != "" {
				if got != nil || !strings.Contains(why, tt.why) {
					t.Errorf("%q, %q: want %q", got, why, tt.why)
				}
			} else if !slices.Equal(got, tt.want) || why != "" {
				t.Errorf("%q, %q: want %q", got, why, tt.want)
			}
		})
	}
}

// The command of an image is not looked up if the pod sets the command, if no gate needs it, or if the pod is not
// injected.
func TestOnlyWhatMattersIsLookedUp(t *testing.T) {
	tests := map[string]struct {
		pod  string
		want []string
	}{
		"each image once":                {`{spec: {containers: [{name: a, image: x}, {name: b, image: x, args: [y]}, {name: c, image: z}]}}`, []string{"x", "z"}},
		"known commands":                 {`{spec: {containers: [{name: a, image: x, command: [/x]}]}}`, nil},
		"an init container":              {`{spec: {initContainers: [{name: i, image: i}], containers: [{name: a, image: x, command: [/x]}]}}`, nil},
		"one that others wait for":       {`{metadata: {annotations: {outrider.dev/depends-on.app: db}}, spec: {containers: [{name: app, image: x, command: [/x]}, {name: db, image: db, readinessProbe: {tcpSocket: {port: 1}}}]}}`, []string{"db"}},
		"not injected":                   {`{spec: {hostNetwork: true, containers: [{name: a, image: x}]}}`, nil},
		"no order":                       {`{metadata: {annotations: {outrider.dev/start: off}}, spec: {containers: [{name: a, image: x}]}}`, nil},
		"another mechanism is requested": {`{metadata: {annotations: {outrider.dev/start: native}}, spec: {containers: [{name: a, image: x}]}}`, nil},
		"a gate is requested":            {`{metadata: {annotations: {outrider.dev/start: gate}}, spec: {containers: [{name: a, image: x}]}}`, []string{"x"}},
		"the node's own":                 {`{spec: {containers: [{name: a, image: x, imagePullPolicy: Never}]}}`, nil},
		"the proxy's container":          {`{spec: {containers: [{name: a, image: x, command: [/x]}, {name: outrider-proxy, image: auto}]}}`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var lookedUp []string
			_, err := Resolving(podOf(t, tt.pod), Namespace{Name: "shop"}, Options{}, func(images []string) map[string]imagecmd.Command {
				if lookedUp != nil {
					t.Error("looked up twice")
				}
				lookedUp = images
				return nil
			})
			if diff := cmp.Diff(tt.want, lookedUp); diff != "" {
				t.Errorf("%v, looked up (-want +got):\n%s", err, diff)
			}
			if r, _ := Pod(podOf(t, tt.pod), Namespace{Name: "shop"}, Options{}); r.Unknown != nil {
				t.Errorf("without look-ups: %q", r.Unknown)
			}
		})
	}
}

// Stripped removes commands that came from images, unless the author has changed them since.
func TestCommandsOfImagesGoAgain(t *testing.T) {
	given := podOf(t, `{metadata: {name: shop}, spec: {containers: [{name: app, image: "shop:4", args: [serve]}, {name: log, image: "log:1"}]}}`)
	o := Options{Commands: map[string]imagecmd.Command{
		"shop:4": {Entrypoint: []string{"/ep"}, Cmd: []string{"other"}, Digest: digestA},
		"log:1":  {Cmd: []string{"/log"}, Digest: digestA},
	}}
	r := injected(t, given, o)
	if !podspec.Gated(containers.Find(r.Pod, "app")) || containers.Find(r.Pod, "log").Image != "log:1@"+digestA {
		t.Fatalf("%+v", r)
	}
	if diff := podDiff(given, mustStrip(t, r.Pod)); diff != "" {
		t.Errorf("(-given +stripped):\n%s", diff)
	}
	later := r.Pod.DeepCopy()
	containers.Find(later, "app").Args = append(containers.Find(later, "app").Args, "--more")
	containers.Find(later, "log").Image = "mirror.test/log:1@" + digestA
	got := mustStrip(t, later)
	if c := containers.Find(got, "app"); !slices.Equal(slices.Concat(c.Command, c.Args), []string{"/ep", "serve", "--more"}) || c.Image != "shop:4@"+digestA {
		t.Errorf("arguments that came since are lost: %+v", c)
	}
	if c := containers.Find(got, "log"); c.Image != "mirror.test/log:1@"+digestA || len(c.Command) > 0 {
		t.Errorf("an image that came since is lost: %+v", c)
	}
	if len(given.Spec.Containers[1].Command) > 0 || given.Spec.Containers[1].Image != "log:1" {
		t.Error("the given pod is changed")
	}
}
