package inject

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/merge"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// checkPrograms enforces the mesh's limits on what a pod's author may run in our containers. outrider-init is
// root with NET_ADMIN, and so is the proxy in some modes. An admission policy may exempt both containers by their
// names, so they must not run anything but the mesh's programs.
func checkPrograms(in input, s effective) error {
	allowed := in.o.Values.Injector.AllowedProxyImages
	if allowed == nil {
		return nil
	}
	const hint = "leave it out, or ask the mesh's administrator (sidecarInjectorWebhook.allowedProxyImages)"
	if image, set := in.annotations()[settings.ImageKey]; set && image != "" && !allows(allowed, s.image) {
		return verdict.Refuse(verdict.ImageRefused, hint, "annotation %s: the mesh does not allow the image %s", settings.ImageKey, s.image)
	}
	for _, own := range slices.Concat(in.own.init, in.own.plain) {
		if own.Image != "" && own.Image != merge.AutoImage && !allows(allowed, own.Image) {
			return verdict.Refuse(verdict.ImageRefused, hint, "the pod's own container %s: the mesh does not allow the image %s", own.Name, own.Image)
		}
		if field := beyondImage(own); field != "" {
			return verdict.Refuse(verdict.ImageRefused, hint, "the pod's own container %s sets %s: where the mesh limits images it may set image, imagePullPolicy, resources and ports", own.Name, field)
		}
	}
	if root := s.mode == settings.TProxy || in.pod.Annotations[settings.BindKey] == "true" || s.init == contract.InitNone; root {
		for _, key := range []string{settings.MountKey, settings.BootstrapKey} {
			if in.annotations()[key] != "" {
				return verdict.Refuse(verdict.ImageRefused, hint, "annotation %s: the proxy of this pod runs as root, and where the mesh limits images it gets no files of the pod's author", key)
			}
		}
	}
	return nil
}

// allows reports whether an image is allowed: an entry of the list is the image's full reference, the image's
// repository, or a registry or path that contains the image.
func allows(allowed []string, image string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		rest, ok := strings.CutPrefix(image, strings.TrimSuffix(a, "/"))
		return ok && (rest == "" || strings.ContainsAny(rest[:1], "/@") || rest[0] == ':' && strings.Contains(a, "/"))
	})
}

// beyondImage returns the name of a field that c sets and that affects what runs in it, other than the image;
// empty if there is none.
func beyondImage(c corev1.Container) string {
	rest := corev1.Container{Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Resources: c.Resources, Ports: c.Ports, RestartPolicy: c.RestartPolicy,
		TerminationMessagePath: c.TerminationMessagePath, TerminationMessagePolicy: c.TerminationMessagePolicy,
		VolumeMounts: slices.DeleteFunc(slices.Clone(c.VolumeMounts), isToken)}
	for _, f := range []struct {
		name string
		set  bool
	}{{"command", len(c.Command) > 0}, {"args", len(c.Args) > 0}, {"env", len(c.Env) > 0}, {"volumeMounts", len(rest.VolumeMounts) > 0}, {"securityContext", c.SecurityContext != nil}} {
		if f.set {
			return f.name
		}
	}
	if !equality.Semantic.DeepEqual(c, withMounts(rest, c.VolumeMounts)) {
		return "more than that"
	}
	return ""
}

func withMounts(c corev1.Container, mounts []corev1.VolumeMount) corev1.Container {
	c.VolumeMounts = mounts
	return c
}

// isToken reports whether a mount belongs to the service account token, which the API server adds to every
// container.
func isToken(m corev1.VolumeMount) bool {
	return m.ReadOnly && m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount"
}
